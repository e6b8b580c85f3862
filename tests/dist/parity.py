"""The same experiment on every driver and on one, two and three ranks.

``python -m tests.dist.parity`` prints the table.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.dist.project import Finished, Project, losses, samples, together

STEPS = 50
CASES = {
    ("torch", 1): ["driver=torch"],
    ("torch_ddp", 2): ["driver=torch_ddp", "driver.num_processes=2"],
    ("torch_ddp", 3): ["driver=torch_ddp", "driver.num_processes=3"],
    ("paddle", 1): ["driver=paddle"],
    ("paddle_fleet", 2): ["driver=paddle_fleet", "driver.num_processes=2"],
    ("paddle_fleet", 3): ["driver=paddle_fleet", "driver.num_processes=3"],
}
ARGS = [
    "data.global_batch_size=32",
    f"trainer.max_steps={STEPS}",
    "trainer.log_every=1",
    "callbacks=[progress,recorder]",
]


@dataclass(frozen=True)
class Trained:
    """A run of the experiment.

    Attributes:
        project: where it was.
        finished: its command.
        run: its directory.
    """

    project: Project
    finished: Finished
    run: Path

    def greatest_difference(self, other: Trained) -> float:
        """Of the losses of all steps, relative to those of the other run."""
        own, theirs = losses(self.run), losses(other.run)
        return max(abs(own[step] / theirs[step] - 1) for step in theirs)


def train_all(directory: Path) -> dict[tuple[str, int], Trained]:
    """Run every case."""

    def train(case: tuple[str, int]) -> Trained:
        project = Project.make(directory / "-".join(map(str, case)))
        finished = project.run(*CASES[case], *ARGS)
        assert finished.code == 0, finished.text
        return Trained(project, finished, project.run_directory())

    return together({case: lambda case=case: train(case) for case in CASES})


def table(runs: dict[tuple[str, int], Trained]) -> str:
    """What they came to, as Markdown."""
    first = runs["torch", 1]
    lines = [
        f"| driver | ranks | loss at step {STEPS} | greatest relative difference to torch "
        "| same samples in each step |",
        "|---|---|---|---|---|",
    ]
    for (driver, ranks), each in runs.items():
        same = "yes" if samples(each.run) == samples(first.run) else "NO"
        difference = "" if each is first else f"{each.greatest_difference(first):.1e}"
        lines.append(
            f"| `{driver}` | {ranks} | {losses(each.run)[STEPS]:.6f} | {difference} | {same} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        sys.stdout.write(table(train_all(Path(name))) + "\n")
