"""The build hook of wheels and source distributions: none is made without the dashboard's built files.

It builds nothing itself, so that no packaging ever needs Node or the network. An editable installation serves the files
from the tree, whenever they are made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

INDEX = Path("service/shardkeep_service/ui/static/index.html")


class DashboardIsBuilt(BuildHookInterface[Any]):
    """Stops a build that would leave the dashboard out."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  (hatchling's interface)
        """RuntimeError, naming the command, where the files are missing."""
        if version != "editable" and not (Path(self.root) / INDEX).is_file():
            raise RuntimeError(
                f"the dashboard is not built ({INDEX} is missing): run `make dashboard`, then build again"
            )
