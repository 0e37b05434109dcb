"""What a real training saved, as the service tells it to people: generators, positions, slices, what changed."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

import shardkeep as sk
from shardkeep.protocol import routes
from shardkeep.pytorch.sampler import ResumableSampler
from tests.integration.service.process_client import exchange
from tests.service_process import ServiceProcess


def told(service: ServiceProcess, template: str, query: str = "", **parts: str) -> Any:
    answer = exchange(service, "GET", routes.path(template, **parts) + query)
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def test_generators_positions_and_what_a_step_changed_are_told_as_the_keeper_saved_them(
    client: sk.Client, shared_service: ServiceProcess
) -> None:
    torch.manual_seed(3)
    model = nn.Linear(4, 4)
    model.bias.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters())
    sampler = ResumableSampler(8, batch_size=2)
    run = client.run("reports/contents")
    with sk.Checkpointer(run, model=model, optimizer=optimizer, data=sampler, note={"by": "<b>me</b>"}) as keeper:
        keeper.resume()
        for step in (1, 2):
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            sampler.count()
            keeper.save(step)
        keeper.wait()
    listed = told(shared_service, routes.RUN_CHECKPOINTS, project="reports", run="contents")["items"]
    second, first = [item["id"] for item in listed]

    values = told(shared_service, routes.VALUES, "?limit=200", checkpoint=second)["items"]
    kinds = {item["name"]: item["kind"] for item in values}
    owners = {item["name"]: item["rank"] for item in values}
    texts = {item["name"]: item["text"] for item in values}
    assert {kinds[f"@rng.{kind}"] for kind in ("python", "numpy", "torch")} == {"random"}
    assert {owners[f"@rng.{kind}"] for kind in ("python", "numpy", "torch")} == {0}
    assert {kinds[f"data.{member}"] for member in sampler.state_dict()} | {kinds["@loop"]} == {"position"}
    assert (texts["data.samples"], texts["note.by"], kinds["note.by"]) == ("4", '"<b>me</b>"', "value")
    assert json.loads(texts["@loop"])["step"] == 2

    [piece] = told(shared_service, routes.SLICES, "?tensor=model.weight", checkpoint=second)["items"]
    assert (piece["rank"], piece["offsets"], piece["sizes"], piece["raw_bytes"]) == (0, [0, 0], [4, 4], 64)
    [rank] = told(shared_service, routes.RANKS, checkpoint=second)["items"]
    assert (rank["state"], rank["manifest_bytes"] > 0) == ("arrived", True)

    difference = told(shared_service, routes.DIFFERENCES, checkpoint=second, other=first)
    changes = {item["name"]: item["change"] for item in difference["items"]}
    assert changes["model.weight"] == "changed"
    assert "model.bias" not in changes
    impact = told(shared_service, routes.IMPACT, checkpoint=second)
    assert (impact["is_latest"], impact["latest_after"]["id"]) == (True, first)
    assert impact["freed_bytes"] > 0
