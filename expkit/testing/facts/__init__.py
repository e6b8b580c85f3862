"""Facts about drivers, by subject; `DriverSuite` and `DistributedSuite` put them together."""

from __future__ import annotations

import pytest

# A failure then shows the two sides of a comparison, as in a test file.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "gradients",
            "evaluation",
            "optimizers",
            "state",
            "life",
            "rank_gradients",
            "rank_state",
            "rank_collectives",
        )
    )
)
