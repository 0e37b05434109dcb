"""The service under the sampler: `python -m bench.sampled_service serve ...` writes its profile when it ends."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import shardkeep_service.cli.serving  # noqa: F401 - imported before the clock starts
from bench.running_service import PROFILE_VARIABLE
from bench.sampler import Sampler
from shardkeep_service.cli.main import main

if __name__ == "__main__":
    sampler = Sampler()
    try:
        with sampler:
            main()
    finally:
        Path(os.environ[PROFILE_VARIABLE]).write_text(json.dumps([asdict(cost) for cost in sampler.costs()]))
