"""What a save, an abort, a refusal and a busy budget leave in the metrics."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from shardkeep.protocol import routes
from tests.unit.service.training import Training


def values(training: Training) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = training.service.send("GET", "/metrics").content.decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(training: Training, name: str, **labels: str) -> float:
    return values(training).get((name, frozenset(labels.items())), 0.0)


def test_a_save_counts_its_chunks_its_bytes_and_its_commit(training: Training) -> None:
    attempt = training.start(fresh=True)
    checkpoint = training.open_all(attempt, save=1, step=1)
    packed = training.pack_all(1)
    refs = [ref for one in packed for ref, _ in one.chunks]
    offers = [{"digest": ref.digest, "size": ref.size_bytes, "crc64": ref.crc64} for ref in refs]
    negotiate = routes.path(routes.NEGOTIATE, checkpoint=checkpoint)
    training.service.ask("POST", negotiate, {"rank": 0, "chunks": offers})
    assert training.finish(checkpoint, packed)["state"] == "committed"
    again = training.open_all(attempt, save=2, step=2)
    negotiate = routes.path(routes.NEGOTIATE, checkpoint=again)
    training.service.ask("POST", negotiate, {"rank": 0, "chunks": offers})
    training.service.control.validator.wait_until_idle()
    for name, labels, expected in (
        ("shardkeep_negotiated_chunks_total", {"answer": "upload"}, 2),
        ("shardkeep_negotiated_chunks_total", {"answer": "present"}, 2),
        ("shardkeep_upload_size_bytes_count", {"way": "streamed"}, 2),
        ("shardkeep_upload_size_bytes_sum", {"way": "streamed"}, sum(ref.size_bytes for ref in refs)),
        ("shardkeep_upload_duration_seconds_count", {"way": "streamed"}, 2),
        ("shardkeep_checkpoints_total", {"outcome": "committed"}, 1),
        ("shardkeep_commit_duration_seconds_count", {}, 1),
        ("shardkeep_validation_duration_seconds_count", {"outcome": "committed"}, 1),
        ("shardkeep_upload_budget_used_bytes", {}, 0),
    ):
        assert value(training, name, **labels) == expected, name


def test_each_way_a_save_ends_is_an_outcome_of_its_own(training: Training) -> None:
    attempt = training.start(fresh=True)
    given_up = training.open_all(attempt, save=1, step=1)
    path = routes.path(routes.ABORT, checkpoint=given_up)
    for _ in range(2):
        training.service.ask("POST", path, {"rank": 0, "reason": "enough"})
    training.open_all(attempt, save=2, step=2)
    training.begin()
    assert value(training, "shardkeep_checkpoints_total", outcome="aborted_by_client") == 1
    assert value(training, "shardkeep_checkpoints_total", outcome="superseded") == 1


def test_refusals_are_counted_by_their_code(training: Training) -> None:
    for _ in range(3):
        training.service.refused("unknown_project", "GET", "/v1/projects/nope")
    training.service.refused("token_missing", "GET", "/v1/projects", headers={"authorization": ""})
    assert value(training, "shardkeep_refusals_total", code="unknown_project") == 3
    assert value(training, "shardkeep_refusals_total", code="token_missing") == 1
