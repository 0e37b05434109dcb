"""`make demo`: the story with the embedded service, SQLite and a directory.

Exits with 0 only if every claim it prints was checked and held.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from demo.service import running_service
from demo.story import Story, console


def main() -> None:
    """Runs the demo in a temporary folder."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shardkeep-demo-") as name:
        folder = Path(name)
        with running_service(folder / "data") as service:
            Story(port=service.port, token=service.token, folder=folder).tell()
    console.print(f"done in {time.monotonic() - started:.0f} s; everything above was checked")


if __name__ == "__main__":
    main()
