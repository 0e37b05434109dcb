"""`make demo`: the story with the embedded service, SQLite and a directory.

Exits with 0 only if every claim it prints was checked and held.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from demo.service import running_service
from demo.story import SETUPS_OF, Story, console


def main() -> None:
    """Runs the demo in a temporary folder."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--optimizer", choices=SETUPS_OF, default="zero2", help="what shards the state (default zero2)")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shardkeep-demo-") as name:
        folder = Path(name)
        with running_service(folder / "data") as service:
            Story(port=service.port, token=service.token, folder=folder, optimizer=options.optimizer).tell()
    console.print(f"done in {time.monotonic() - started:.0f} s; everything above was checked")


if __name__ == "__main__":
    main()
