"""A data directory that real saves filled: what every page of the dashboard has something to show of.

`fill` takes seconds, so it is done once for all test processes; each module serves a copy of its own.
"""

from __future__ import annotations

import fcntl
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import shardkeep as sk
from shardkeep.connection.access_client import AccessClient
from shardkeep.connection.keeping_client import KeepingClient
from shardkeep.protocol.messages import BestRule, CreateJobToken, CreateToken, RetentionRules, SetQuota
from tests.browser.launches import MARKUP, Launch
from tests.service_process import ServiceProcess
from tests.warm_process import run_program

PROJECT: Final = "demo"
ENV: Final = {
    # Nobody beats for the saves that stay open, and what a test looks at does not change by itself.
    "SHARDKEEP_SERVICE_LEASE_SECONDS": "1000000",
    "SHARDKEEP_SERVICE_OPEN_DEADLINE_SECONDS": "1000000",
    "SHARDKEEP_SERVICE_OPEN_LIMIT_SECONDS": "1000000",
    "SHARDKEEP_SERVICE_RETENTION_SECONDS": "1000000",
    "SHARDKEEP_SERVICE_SCRUB_SECONDS": "1000000",
    "SHARDKEEP_SERVICE_COLLECTION_SECONDS": "1000000",
    "SHARDKEEP_SERVICE_DELETED_KEEP_SECONDS": "604800",
}
SPECIAL_METRICS: Final = {
    "loss": 0.25,
    "nan": math.nan,
    "up": math.inf,
    "down": -math.inf,
    "huge": 1e308,
    MARKUP: 1.5,
}


@dataclass(frozen=True, slots=True)
class Tokens:
    """Texts of tokens, one for each scope; `bound` reads `demo` only, and `job` is of the jobs of its `transformer`."""

    read: str
    write: str
    bound: str
    job: str


@dataclass(frozen=True, slots=True)
class Filled:
    """Ids of what the directory holds. Runs are all of the project `demo`."""

    first: str
    """Step 100 of `transformer`, tagged `release-1`."""
    second: str
    """Step 200, pinned; the second attempt resumed from it."""
    latest: str
    """Step 400 of the second attempt, with special metrics, tagged `best`."""
    off_line: str
    """Step 300 of the first attempt."""
    aborted: str
    """Step 500 of `transformer`: rank 1 never came."""
    deleted: str
    """Step 50 of `transformer`."""
    damaged: str
    """Step 2 of `damaged`, which the scrub quarantined."""
    open: str
    """Step 7 of `saving`, which rank 1 of 3 has not opened."""
    damaged_digest: str
    tokens: Tokens


def copy_of_filled(shared: Path, data_dir: Path) -> Filled:
    """Puts a copy of the filled directory at `data_dir`; the first process of the run to ask fills it."""
    shared.mkdir(parents=True, exist_ok=True)
    facts = shared / "filled.json"
    with (shared / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not facts.exists():
            facts.write_text(json.dumps(asdict(_filled(shared))))
    shutil.copytree(shared / "service", data_dir)
    found = json.loads(facts.read_text())
    return Filled(**{**found, "tokens": Tokens(**found["tokens"])})


def _filled(shared: Path) -> Filled:
    shutil.rmtree(shared / "service", ignore_errors=True)
    with ServiceProcess(shared / "service", env=ENV) as service:
        return fill(service)


def fill(service: ServiceProcess) -> Filled:
    """Saves, changes and damages until every page has something to show."""
    with sk.connect(service.url, service.token, codec="planes") as client:
        access, keeping = AccessClient(client.service.transport), KeepingClient(client.service.transport)
        main = _fill_main(client, service.data_dir.parent / "unpickled")
        _fill_others(client)
        damaged, digest = _fill_damaged(client, service)
        saving = Launch(client, f"{PROJECT}/saving", world_size=3, labels={"job": MARKUP})
        saving.save(6, {"loss": 1.0})
        opened = saving.open(7, ranks=2)
        _set_rules(keeping)
        access.set_quota(PROJECT, SetQuota(max_bytes=10**12, max_checkpoints=1000))
        tokens = _make_tokens(access)
    return Filled(**main, damaged=damaged, open=opened, damaged_digest=digest, tokens=tokens)


def _fill_main(client: sk.Client, pickled: Path) -> dict[str, str]:
    first_launch = Launch(client, f"{PROJECT}/transformer", labels={"job": "1", "note": MARKUP}, pickled=pickled)
    deleted = first_launch.save(50, {"loss": 2.0})
    first = first_launch.save(100, {"loss": 1.0})
    second = first_launch.save(200, {"loss": 0.5})
    off_line = first_launch.save(300, {"loss": 9.0})
    launch = Launch(client, f"{PROJECT}/transformer", labels={"job": "2"}, resume_from=second.id, pickled=pickled)
    latest = launch.save(400, SPECIAL_METRICS)
    aborted = launch.save_without_the_last_rank(500, f"rank 1 is gone {MARKUP}")
    first.tag("release-1")
    second.pin(f"for the paper {MARKUP}")
    latest.tag("best")
    deleted.delete()
    ids = {"first": first, "second": second, "latest": latest, "off_line": off_line, "deleted": deleted}
    return {"aborted": aborted, **{name: checkpoint.id for name, checkpoint in ids.items()}}


def _fill_others(client: sk.Client) -> None:
    """Runs to list, filter and sort: one plain, one without a checkpoint, one deleted; projects beside `demo`."""
    baseline = Launch(client, f"{PROJECT}/baseline", world_size=1)
    for step in range(10, 70, 10):
        baseline.save(step, {"loss": 1 / step})
    client.service.ensure_run(PROJECT, "untouched")
    given_up = client.run(f"{PROJECT}/given-up")
    given_up.save(1, {"step": 1}).wait(60)
    given_up.delete()
    client.service.ensure_run("spare", "nothing")
    KeepingClient(client.service.transport).set_policy("spare", None, RetentionRules(keep_last=3))


def _fill_damaged(client: sk.Client, service: ServiceProcess) -> tuple[str, str]:
    """The checkpoint whose chunk the scrub found damaged, and the chunk's digest."""
    launch = Launch(client, f"{PROJECT}/damaged", world_size=1)
    launch.save(1, {"loss": 1.0})
    harmed = launch.save(2, {"loss": 0.9})
    kept = {ref.digest for ref in client.run(f"{PROJECT}/damaged").checkpoint(1).manifest().chunks()}
    digest = next(ref.digest for ref in harmed.manifest().chunks() if ref.digest not in kept)
    (stored,) = service.data_dir.rglob(f"{digest}.*")
    flip_bit(stored)
    done = run_program(
        "shardkeep-service", "scrub", "--data", str(service.data_dir), "--all", env=service.environment()
    )
    assert digest in done.stdout, f"{done.stdout}\n{done.stderr}"
    return harmed.id, digest


def flip_bit(path: Path) -> None:
    """Damages one stored object in place."""
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def _set_rules(keeping: KeepingClient) -> None:
    best = BestRule(metric=MARKUP, mode="min", count=2)
    keeping.set_policy(PROJECT, None, RetentionRules(keep_last=100, tags=["best", "release-1"], best=[best]))
    keeping.set_policy(PROJECT, "baseline", RetentionRules(keep_last=50))  # the worker applies it at each start


def _make_tokens(access: AccessClient) -> Tokens:
    job = CreateJobToken(name="a job of transformer", project=PROJECT, run="transformer")
    make: Callable[[CreateToken], str] = lambda message: access.create_token(message).token  # noqa: E731
    revoked = access.create_token(CreateToken(name=f"revoked {MARKUP}", scope="write"))
    access.revoke_token(revoked.info.id)
    return Tokens(
        read=make(CreateToken(name="reader", scope="read")),
        write=make(CreateToken(name=f"writer {MARKUP}", scope="write")),
        bound=make(CreateToken(name="reader of demo", scope="read", projects=[PROJECT], expires_in_seconds=86_400)),
        job=access.mint_job_token(job).token,
    )
