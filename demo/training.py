"""One training rank of the demo: over gloo, a checkpoint every few steps, everything it saw written to a file.

Run by `demo.ranks`, never by hand: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from there, as from torchrun.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional

import shardkeep as sk
from demo.corpus import Windows, read_corpus
from demo.setups import SETUPS, build, whole_state_digest

SEED = 1234
WINDOWS = 600
GLOBAL_BATCH = 12
EVERY_STEPS = 5
CORPUS_BYTES = 400_000


def train(arguments: argparse.Namespace) -> None:
    """Resumes, trains to `--steps`, and writes what happened to `--report` + `.<rank>.jsonl`."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model, optimizer = build(arguments.setup, seed=SEED)
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
    parser.add_argument("--setup", choices=SETUPS, required=True)
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
