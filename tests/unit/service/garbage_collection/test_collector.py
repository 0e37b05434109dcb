"""Collection, step by step: what is needed stays, what is not goes, in the order of a commit backwards."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import func, select

from shardkeep.protocol import routes
from shardkeep_service.access.usage import used_bytes
from shardkeep_service.catalogue.commit_records import write_commit_records
from shardkeep_service.checkpoints.expiry import expire_checkpoints
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.chunks.models import Chunk
from shardkeep_service.garbage_collection.collector import collect, steps
from shardkeep_service.garbage_collection.models import CollectionProgress
from shardkeep_service.garbage_collection.survey import survey
from shardkeep_service.worker.loop import Turn
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES

DAY = 86_400.0
KEPT = 7 * DAY


def collect_all(training: Training) -> None:
    """One whole pass, the outbox before it."""
    write_commit_records(training.service.context)
    for _ in steps(training.service.context):
        pass


def keys(training: Training, kind: str) -> list[str]:
    return [blob.key for blob in training.service.blob_store.list("") if f"/{kind}/" in blob.key]


def test_a_deleted_checkpoint_goes_whole_after_the_restorable_time_and_the_graces(training: Training) -> None:
    attempt = training.start()
    first, second = training.save(attempt, save=1, step=1), training.save(attempt, save=2, step=2)
    training.change("DELETE", routes.CHECKPOINT, first)

    training.service.advance(KEPT - DAY)
    collect_all(training)
    assert training.info(first)["state"] == "deleted"
    training.service.advance(2 * DAY)
    collect_all(training)
    assert training.info(first)["state"] == "purged"
    assert not [key for key in keys(training, "commits") + keys(training, "manifests") if first in key]
    assert len(keys(training, "chunks")) == 4
    training.service.advance(2 * DAY)
    collect_all(training)

    assert {key.split("/")[3] for key in keys(training, "chunks")} == {second}
    assert training.load(second).shape == (4, 4)
    with training.service.database.read() as session:
        assert session.scalars(select(func.count()).select_from(Chunk)).one() == 2
        assert session.scalars(select(ManifestRow.checkpoint_id).distinct()).all() == [second]
        project = session.get_one(Checkpoint, second).project_id
        assert used_bytes(session, project) == sum(session.scalars(select(Chunk.size_bytes)))


def test_what_was_restored_before_the_purge_stays_whole(training: Training) -> None:
    attempt = training.start()
    first = training.save(attempt, save=1, step=1)
    training.save(attempt, save=2, step=2)
    training.change("DELETE", routes.CHECKPOINT, first)
    training.service.advance(KEPT - 60)
    training.change("POST", routes.RESTORE, first)

    for _ in range(3):
        training.service.advance(KEPT)
        collect_all(training)

    assert training.info(first)["state"] == "committed"
    assert training.load(first).shape == (4, 4)


def test_a_purged_one_is_restored_no_more(training: Training) -> None:
    attempt = training.start()
    first = training.save(attempt, save=1, step=1)
    training.save(attempt, save=2, step=2)
    training.change("DELETE", routes.CHECKPOINT, first)
    training.service.advance(KEPT + DAY)
    collect_all(training)

    version = training.info(first)["version"]
    path = routes.path(routes.RESTORE, checkpoint=first)
    problem = training.service.refused("checkpoint_not_committed", "POST", path, headers={"if-match": f'"{version}"'})
    assert problem["state"] == "purged"


def test_what_the_current_attempt_resumed_from_and_the_parent_of_a_save_are_not_purged(training: Training) -> None:
    first = training.save(training.start(), save=1, step=1)
    attempt = training.start()
    training.change("DELETE", routes.CHECKPOINT, first)

    training.service.advance(KEPT + DAY)
    collect_all(training)
    assert training.info(first)["state"] == "deleted"
    assert training.load(first).shape == (4, 4)

    second = training.save(attempt, save=1, step=2)
    third = training.start()
    training.open(third, save=1, step=3, rank=0)
    training.change("DELETE", routes.CHECKPOINT, second)
    training.service.advance(KEPT + DAY)
    collect_all(training)
    assert training.info(first)["state"] == "purged"
    assert training.info(second)["state"] == "deleted"


def test_chunks_that_a_kept_checkpoint_shares_stay(training: Training) -> None:
    attempt = training.start()
    packed = training.pack_all(1)
    first = training.save(attempt, save=1, step=1, packed=packed)
    second = training.open_all(attempt, save=2, step=2)
    again = training.pack_all(2)
    for rank, one in enumerate(packed):
        training.upload(second, rank, one)
    assert training.finish(second, again)["state"] == "committed"
    training.change("DELETE", routes.CHECKPOINT, second)

    for _ in range(4):
        training.service.advance(KEPT + DAY)
        collect_all(training)

    assert training.info(second)["state"] == "purged"
    assert training.load(first).tolist() == training.load(first).tolist()
    assert {key.split("/")[3] for key in keys(training, "chunks")} == {first}


def test_E20_what_an_aborted_save_left_is_collected(training: Training) -> None:
    attempt = training.start()
    kept = training.save(attempt, save=1, step=20)
    killed = training.open_all(attempt, save=2, step=40)
    packed = training.pack_all(40)
    training.upload(killed, 0, packed[0])
    training.hand_in(killed, 0, packed[0])
    training.upload(killed, 1, packed[1])
    second = training.start()
    again = training.save(second, save=1, step=40)

    for _ in range(4):
        training.service.advance(DAY)
        collect_all(training)

    assert training.info(killed)["state"] == "aborted"
    assert training.latest_id() == again
    assert [training.load(one).shape for one in (kept, again)] == [(4, 4), (4, 4)]
    assert not [key for key in keys(training, "manifests") + keys(training, "opens") if killed in key]


def test_E20_bytes_that_only_an_aborted_save_brought_go(training: Training) -> None:
    attempt = training.start()
    kept = training.save(attempt, save=1, step=20)
    killed = training.open_all(attempt, save=2, step=40)
    for rank, one in enumerate(training.pack_all(40)):
        training.upload(killed, rank, one)
    training.service.advance(1000)
    expire_checkpoints(training.service.context)

    for _ in range(4):
        training.service.advance(2 * DAY)
        collect_all(training)

    assert training.info(killed)["state"] == "aborted"
    assert {key.split("/")[3] for key in keys(training, "chunks")} == {kept}


def test_a_chunk_uploaded_again_after_it_was_condemned_lives_under_a_new_key(training: Training) -> None:
    attempt = training.start()
    first = training.save(attempt, save=1, step=1)
    training.save(attempt, save=2, step=2)
    training.change("DELETE", routes.CHECKPOINT, first)
    training.service.advance(KEPT + DAY)
    collect_all(training)
    with training.service.database.read() as session:
        condemned = {row.digest: row.object_key for row in session.scalars(select(Chunk)) if row.state == "condemned"}
    assert len(condemned) == 2

    third = training.open_all(attempt, save=3, step=1)
    packed = training.pack_all(1)
    offers = [{"digest": ref.digest, "size": ref.size_bytes, "crc64": ref.crc64} for ref, _ in packed[0].chunks]
    negotiate = routes.path(routes.NEGOTIATE, checkpoint=third)
    answer = training.service.ask("POST", negotiate, {"rank": 0, "chunks": offers})
    assert [chunk["present"] for chunk in answer["chunks"]] == [False]
    assert training.finish(third, packed)["state"] == "committed"
    training.service.blob_store.delete(list(condemned.values()))  # a DELETE that comes late

    for _ in range(3):
        training.service.advance(2 * DAY)
        collect_all(training)
    assert training.load(third).shape == (4, 4)
    assert not set(condemned.values()) & set(keys(training, "chunks"))


def test_strays_go_when_two_passes_a_grace_apart_saw_them(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=1)
    with training.service.database.read() as session:
        project = session.get_one(Checkpoint, saved).project_id
    gone = "ckp_" + "0" * 32
    strays = [
        f"{project}/chunks/00/{gone}/{'a' * 64}.1",
        f"{project}/manifests/{gone}/0.{'b' * 16}",
        f"{project}/indexes/{saved}/{'c' * 16}",
    ]
    foreign = [f"{project}/chunks/somebody.else", f"{project}/notes/a"]
    for key in (*strays, *foreign):
        training.service.blob_store.put(key, memoryview(b"x"))

    collect_all(training)
    collect_all(training)
    assert set(strays) <= {blob.key for blob in training.service.blob_store.list("")}
    training.service.advance(DAY + 60)
    collect_all(training)

    left = {blob.key for blob in training.service.blob_store.list("")}
    assert not left & set(strays)
    assert set(foreign) <= left
    assert training.load(saved).shape == (4, 4)


def test_objects_of_an_unfinished_checkpoint_are_no_strays(training: Training) -> None:
    attempt = training.start()
    opened = training.open_all(attempt, save=1, step=1)
    with training.service.database.read() as session:
        project = session.get_one(Checkpoint, opened).project_id
    key = f"{project}/chunks/{opened[-2:]}/{opened}/{'a' * 64}.1"
    training.service.blob_store.put(key, memoryview(b"x"))
    for _ in range(3):
        training.service.advance(2 * DAY)
        collect_all(training)
    assert key in {blob.key for blob in training.service.blob_store.list("")}

    expire_checkpoints(training.service.context)
    for _ in range(3):
        training.service.advance(2 * DAY)
        collect_all(training)
    assert key not in {blob.key for blob in training.service.blob_store.list("")}


def test_an_unknown_commit_record_stops_everything_until_it_is_known(training: Training) -> None:
    attempt = training.start()
    first = training.save(attempt, save=1, step=1)
    training.save(attempt, save=2, step=2)
    training.change("DELETE", routes.CHECKPOINT, first)
    write_commit_records(training.service.context)
    with training.service.database.read() as session:
        project = session.get_one(Checkpoint, first).project_id
    unknown = f"{project}/commits/ckp_{'1' * 32}.00000003.json"
    training.service.blob_store.put(unknown, memoryview(b"{}"))
    training.service.advance(KEPT + DAY)

    collect(training.service.context, Turn())

    assert training.info(first)["state"] == "deleted"
    with training.service.database.read() as session:
        progress = session.get_one(CollectionProgress, "collection")
    assert "rebuild" in (progress.stopped_because or "")
    assert b"shardkeep_collection_stopped 1.0" in training.service.context.metrics.text()
    training.service.blob_store.delete([unknown])
    collect(training.service.context, Turn())
    assert training.info(first)["state"] == "purged"
    assert b"shardkeep_collection_stopped 0.0" in training.service.context.metrics.text()


def test_a_pass_goes_on_where_it_was_left(training: Training) -> None:
    attempt = training.start()
    for step in range(1, 4):
        training.save(attempt, save=step, step=step)
    whole = len(list(_steps_left(training)))
    for cut in range(1, whole, 7):
        for number, _ in enumerate(_steps_left(training)):
            if number == cut:
                break
    collect_all(training)
    with training.service.database.read() as session:
        progress = session.get_one(CollectionProgress, "collection")
    assert progress.place == {}
    assert progress.ended_at is not None


def test_a_survey_says_what_the_next_pass_does_and_touches_nothing(training: Training) -> None:
    attempt = training.start()
    first = training.save(attempt, save=1, step=1)
    training.save(attempt, save=2, step=2)
    training.change("DELETE", routes.CHECKPOINT, first)
    training.service.advance(KEPT + DAY)
    context = training.service.context
    before = [blob.key for blob in training.service.blob_store.list("")]

    assert survey(context).purged_checkpoints == 1
    assert [blob.key for blob in training.service.blob_store.list("")] == before
    collect_all(training)
    found = survey(context)
    assert (found.purged_checkpoints, found.waiting_chunks.count, found.removed_chunks.count) == (0, 2, 0)
    training.service.advance(DAY + 60)
    assert survey(context).removed_chunks.count == 2


def _steps_left(training: Training) -> Iterator[int]:
    return steps(training.service.context)


def test_the_id_of_a_collected_chunk_is_never_given_again(training: Training) -> None:
    attempt = training.start()
    first = training.save(attempt, save=1, step=1)
    training.save(attempt, save=2, step=2, packed=training.pack_all(2))
    last = training.save(attempt, save=3, step=3)
    with training.service.database.read() as session:
        highest = session.scalars(select(func.max(Chunk.id))).one()
    training.change("DELETE", routes.CHECKPOINT, last)
    training.change("DELETE", routes.CHECKPOINT, first)
    for _ in range(3):
        training.service.advance(KEPT + DAY)
        collect_all(training)
    with training.service.database.read() as session:
        assert session.scalars(select(func.max(Chunk.id))).one() < highest

    training.save(attempt, save=4, step=4)

    with training.service.database.read() as session:
        assert session.scalars(select(func.max(Chunk.id))).one() > highest
