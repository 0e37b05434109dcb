"""One training rank of the demo: FSDP2 over gloo, a checkpoint every few steps, everything it saw written to a file.

Run by `demo.ranks`, never by hand: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from there, as from torchrun.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional

import shardkeep as sk
from demo.corpus import Windows, read_corpus
from demo.gpt import Gpt

SEED = 1234
WINDOWS = 600
GLOBAL_BATCH = 12
EVERY_STEPS = 5
CORPUS_BYTES = 400_000


def build_model() -> Gpt:
    """The model, sharded over all ranks block by block."""
    torch.manual_seed(SEED)
    model = Gpt()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        assert isinstance(fully_shard(block, mesh=mesh), FSDPModule)
    fully_shard(model, mesh=mesh)
    return model


def whole_state_digest(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """SHA-256 of every whole tensor, gathered; what two runs must agree on bit for bit."""
    digests = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter, {})
        for key, value in (("", parameter), *sorted(state.items())):
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            raw = whole.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            digests[f"{name}{'.' if key else ''}{key}"] = hashlib.sha256(raw).hexdigest()
    return digests


def train(arguments: argparse.Namespace) -> None:
    """Resumes, trains to `--steps`, and writes what happened to `--report` + `.<rank>.jsonl`."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
    dataset = Windows(read_corpus(CORPUS_BYTES), count=WINDOWS)
    sampler = sk.ResumableSampler(len(dataset), seed=SEED, batch_size=GLOBAL_BATCH, rank=rank, world_size=world_size)
    loader = sampler.loader(dataset, num_workers=2)
    torch.manual_seed(SEED + rank)  # dropout differs by rank

    run = sk.connect().run(arguments.run)
    keeper = sk.Checkpointer(
        run, model=model, optimizer=optimizer, lr_scheduler=scheduler, data=sampler, every_steps=EVERY_STEPS
    )
    with Path(f"{arguments.report}.{rank}.jsonl").open("a") as report:

        def write(**event: object) -> None:
            report.write(json.dumps(event) + "\n")
            report.flush()

        start = keeper.resume(checkpoint=arguments.checkpoint)
        resumed = keeper.resumed
        write(
            event="resumed",
            step=start,
            verdict=str(resumed.verdict),
            reasons=list(resumed.reasons),
            state=whole_state_digest(model, optimizer),
            lr=scheduler.get_last_lr(),
        )
        batches = iter(loader)
        for step in range(start + 1, arguments.steps + 1):
            indices, windows = next(batches)
            logits = model(windows[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            write(event="step", step=step, loss=float(loss).hex(), indices=indices.tolist())
            if keeper.step(step, metrics={"loss": float(loss)}):
                break
        keeper.close()
        write(event="done", step=arguments.steps, state=whole_state_digest(model, optimizer))


def main() -> None:
    """Parses the arguments, joins the process group, trains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--report", required=True)
    parser.add_argument("--checkpoint", default=None)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    try:
        train(arguments)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
