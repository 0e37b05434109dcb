"""Checkpoints that earlier versions of the client saved load bit-equal, names and optimizer state included.

`tests/golden/checkpoint-v<n>` holds what a client of format version n sent: its manifest and its chunks. They are never
made again. A directory that is missing is written, for the day a format version gets its golden checkpoint, and the
test fails that once.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import shardkeep as sk
from shardkeep.errors import VersionTooNew
from shardkeep.format.chunks import chunk_ref
from shardkeep.format.manifest import decode_manifest
from shardkeep.format.versions import FORMAT_VERSION
from tests.integration.service.process_client import ProcessClient
from tests.service_process import ServiceProcess
from tests.unit.service.training import Packed, Training

GOLDEN = Path(__file__).parents[2] / "golden"
STEP = 3
SCHEDULE = {"epoch": 2, "best": [0.25, None], "name": "päß"}
_VERSION_OFFSET = 4
"""Where a container says its version, after four bytes of magic."""


def built() -> tuple[nn.Module, torch.optim.AdamW]:
    """A model and its optimizer, whose state exists and is still that of no training."""
    model = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.Linear(16, 4, bias=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return model, optimizer


@torch.no_grad()
def fill(model: nn.Module, optimizer: torch.optim.AdamW) -> None:
    """Gives every number of the state a value that follows from its place."""
    tensors = [*model.state_dict().values()]
    for parameter in model.parameters():
        tensors += [value for _, value in sorted(optimizer.state[parameter].items())]
    for number, tensor in enumerate(tensors):
        values = torch.arange(tensor.numel(), dtype=torch.float64).reshape(tensor.shape) / 8 + number
        tensor.copy_(values.to(tensor.dtype))
    optimizer.param_groups[0]["lr"] = 0.0625


def write_golden(directory: Path, service: ServiceProcess) -> None:
    """What the present client sends for that state."""
    model, optimizer = built()
    fill(model, optimizer)
    with sk.connect(service.url, service.token, codec="planes") as client:
        run = client.run("golden-tests/written")
        with sk.Checkpointer(run, model=model, optimizer=optimizer, state={"schedule": dict(SCHEDULE)}) as keeper:
            keeper.save(STEP)
            keeper.wait()
    objects = service.data_dir / "blobs" / "objects"
    (directory / "chunks").mkdir(parents=True)
    (manifest,) = objects.glob("*/manifests/*/0.*")
    (directory / "manifest.bin").write_bytes(manifest.read_bytes())
    for ref in decode_manifest(manifest.read_bytes()).chunks():
        (chunk,) = objects.glob(f"*/chunks/*/*/{ref.digest}.*")
        (directory / "chunks" / ref.digest).write_bytes(chunk.read_bytes())


def packed(directory: Path) -> Packed:
    chunks = [path.read_bytes() for path in sorted((directory / "chunks").iterdir())]
    return Packed((directory / "manifest.bin").read_bytes(), tuple((chunk_ref([body]), body) for body in chunks))


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_E195_a_checkpoint_of_every_format_version_loads_bit_equal(service: ServiceProcess, version: int) -> None:
    directory = GOLDEN / f"checkpoint-v{version}"
    if not directory.exists():
        write_golden(directory, service)
        pytest.fail(f"{directory} was missing; it was written now: look at it and commit it")
    golden = packed(directory)
    training = Training(ProcessClient(service), project="golden-tests", run=f"v{version}")
    checkpoint = training.open_all(training.start(1, fresh=True), save=1, step=STEP, world_size=1)
    assert training.finish(checkpoint, [golden])["state"] == "committed"
    expected_model, expected_optimizer = built()
    fill(expected_model, expected_optimizer)
    model, optimizer = built()
    schedule: dict[str, object] = {}

    with sk.connect(service.url, service.token) as client:
        run = client.run(f"golden-tests/v{version}")
        with sk.Checkpointer(run, model=model, optimizer=optimizer, state={"schedule": schedule}) as keeper:
            assert keeper.resume() == STEP
            assert keeper.resumed is not None

    for (name, value), expected in zip(model.state_dict().items(), expected_model.state_dict().values(), strict=True):
        assert torch.equal(value, expected), name
    for parameter, expected_parameter in zip(model.parameters(), expected_model.parameters(), strict=True):
        state, expected_state = optimizer.state[parameter], expected_optimizer.state[expected_parameter]
        assert state.keys() == expected_state.keys()
        for key, value in state.items():
            assert torch.equal(value, expected_state[key]), key
    assert optimizer.param_groups[0]["lr"] == 0.0625
    assert schedule == SCHEDULE


def test_E195_the_version_in_the_manifest_decides_who_reads_it() -> None:
    manifest = bytearray((GOLDEN / "checkpoint-v1" / "manifest.bin").read_bytes())
    assert int.from_bytes(manifest[_VERSION_OFFSET : _VERSION_OFFSET + 2], "little") == 1
    manifest[_VERSION_OFFSET : _VERSION_OFFSET + 2] = (FORMAT_VERSION + 1).to_bytes(2, "little")
    with pytest.raises(VersionTooNew):
        decode_manifest(manifest)
