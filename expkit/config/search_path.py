"""Puts the user's config directories before expkit's own in Hydra's search path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin


class UserConfigs(SearchPathPlugin):
    """Hydra asks it for directories whenever it makes a search path.

    Attributes:
        directories: first come, first found.
    """

    directories: ClassVar[tuple[Path, ...]] = ()

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the directories before the primary one, so that a user's option comes first."""
        for directory in self.directories:
            search_path.prepend(provider="user", path=f"file://{directory}", anchor="main")


def install(directories: Sequence[Path]) -> None:
    """Make Hydra search these directories from now on; replaces those of an earlier call."""
    UserConfigs.directories = tuple(directories)
    Plugins.instance().register(UserConfigs)
