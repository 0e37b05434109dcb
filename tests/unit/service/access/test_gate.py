"""The gate recognises tokens, forgets revoked ones within a second and writes uses at most once a minute."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access import repository
from shardkeep_service.access.gate import REMEMBER_SECONDS, Gate, _seconds_to_remember
from shardkeep_service.access.models import Token
from shardkeep_service.access.scopes import Scope
from shardkeep_service.access.secrets import new_token_text
from shardkeep_service.access.service import create_token, principal_of
from shardkeep_service.access.sign_ins import begin_sign_in, end_sign_in
from shardkeep_service.database.database import Database
from shardkeep_service.database.tables import METADATA
from shardkeep_service.errors import Refusal


class Clock:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'x.db'}")
    METADATA.create_all(database.engine)
    yield database
    database.close()


def new_token(database: Database, *, expires_in_seconds: int | None = None) -> tuple[str, str]:
    with database.write() as session:
        now = database.now(session)
        expires_at = None if expires_in_seconds is None else now + expires_in_seconds * 1_000_000
        token, text = create_token(session, now=now, scope=Scope.WRITE, name="job", expires_at=expires_at)
        return token.id, text


def new_sign_in(database: Database, text: str) -> str:
    with database.write() as session:
        now = database.now(session)
        principal = principal_of(session, text, now=now)
        _, secret = begin_sign_in(session, principal, now=now, lifetime_micros=3_600_000_000, address="127.0.0.1")
    return secret


def refusal_code(gate: Gate, text: str) -> ErrorCode:
    with pytest.raises(Refusal) as caught:
        gate.recognise(text)
    return caught.value.code


def test_a_token_is_recognised_with_its_scope(database: Database) -> None:
    token_id, text = new_token(database)
    principal = Gate(database).recognise(text)
    assert (principal.token_id, principal.scope, principal.project_ids) == (token_id, Scope.WRITE, None)


def test_unknown_mistyped_and_expired_tokens_are_told_apart_from_valid_ones(database: Database) -> None:
    gate = Gate(database)
    _, expired = new_token(database, expires_in_seconds=-1)
    assert refusal_code(gate, new_token_text()) is ErrorCode.TOKEN_INVALID
    assert refusal_code(gate, "shardkeep_nonsense") is ErrorCode.TOKEN_INVALID
    assert refusal_code(gate, expired) is ErrorCode.TOKEN_EXPIRED


def test_a_revoked_token_is_remembered_for_a_second_and_no_longer(database: Database) -> None:
    clock = Clock()
    gate = Gate(database, clock=clock)
    token_id, text = new_token(database)
    gate.recognise(text)
    with database.write() as session:
        repository.revoke(session, token_id, 1)
    assert gate.remembered(text) is not None
    clock.seconds += REMEMBER_SECONDS + 0.01
    assert gate.remembered(text) is None
    assert refusal_code(gate, text) is ErrorCode.TOKEN_INVALID


def test_a_sign_in_is_remembered_for_a_second_and_no_longer(database: Database) -> None:
    clock = Clock()
    gate = Gate(database, clock=clock)
    token_id, text = new_token(database)
    secret = new_sign_in(database, text)
    assert gate.remembered_sign_in(secret) is None
    assert gate.recognise_sign_in(secret).token_id == token_id
    with database.write() as session:
        end_sign_in(session, secret, now=database.now(session), address="127.0.0.1")
    assert gate.remembered_sign_in(secret) is not None
    clock.seconds += REMEMBER_SECONDS + 0.01
    assert gate.remembered_sign_in(secret) is None
    with pytest.raises(Refusal, match="has ended"):
        gate.recognise_sign_in(secret)


@pytest.mark.parametrize(("left_micros", "seconds"), [(None, 1.0), (5_000_000, 1.0), (400_000, 0.4)])
def test_nothing_is_remembered_beyond_its_end(left_micros: int | None, seconds: float) -> None:
    now = 1_000_000_000
    assert _seconds_to_remember(None if left_micros is None else now + left_micros, now) == seconds


def test_sign_ins_and_tokens_are_remembered_apart_and_forgotten_together(database: Database) -> None:
    gate = Gate(database, clock=Clock())
    _, text = new_token(database)
    secret = new_sign_in(database, text)
    gate.recognise_sign_in(secret)
    gate.recognise(text)
    assert gate.remembered(secret) is None
    assert gate.remembered_sign_in(text) is None
    gate.forget()
    assert gate.remembered(text) is None
    assert gate.remembered_sign_in(secret) is None


class Interrupted(Database):
    """A database in whose reads something happens, after they have read."""

    meanwhile: Callable[[], None] | None = None
    reads = 0

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        self.reads += 1
        with super().read() as session:
            yield session
        if self.meanwhile is not None:
            self.meanwhile()


@pytest.fixture
def interrupted(database: Database, tmp_path: Path) -> Iterator[Interrupted]:
    """The same database, over connections of its own."""
    interrupted = Interrupted(f"sqlite:///{tmp_path / 'x.db'}")
    yield interrupted
    interrupted.close()


def test_who_was_read_before_everyone_was_forgotten_is_not_remembered_after_it(interrupted: Interrupted) -> None:
    """A revocation, or the end of a sign-in, between reading and remembering: it counts at once here."""
    _, text = new_token(interrupted)
    secret = new_sign_in(interrupted, text)
    gate = Gate(interrupted, clock=Clock())
    interrupted.meanwhile = gate.forget
    gate.recognise(text)
    gate.recognise_sign_in(secret)
    assert gate.remembered(text) is None
    assert gate.remembered_sign_in(secret) is None
    interrupted.meanwhile = None
    gate.recognise(text)
    gate.recognise_sign_in(secret)
    assert gate.remembered(text) is not None
    assert gate.remembered_sign_in(secret) is not None


def test_a_mistyped_token_is_refused_without_asking_the_database(interrupted: Interrupted) -> None:
    gate = Gate(interrupted)
    assert refusal_code(gate, new_token_text() + "x") is ErrorCode.TOKEN_INVALID
    assert interrupted.reads == 0


def test_uses_are_written_together_and_never_within_a_request(database: Database) -> None:
    gate = Gate(database)
    tokens = [new_token(database) for _ in range(3)]

    def last_uses() -> set[int | None]:
        with database.read() as session:
            return {session.get_one(Token, token_id).last_used_at for token_id, _ in tokens}

    for _, text in tokens:
        gate.recognise(text)
    assert last_uses() == {None}
    gate.write_uses()
    assert None not in last_uses()


def test_an_older_use_that_another_replica_writes_later_changes_nothing(database: Database) -> None:
    token_id, _ = new_token(database)
    for used_at in (20, 10):
        with database.write() as session:
            repository.touch(session, {token_id: used_at})
    with database.read() as session:
        assert session.get_one(Token, token_id).last_used_at == 20


def test_the_text_of_a_token_is_nowhere_in_the_database(database: Database, tmp_path: Path) -> None:
    _, text = new_token(database)
    database.close()
    assert text.encode() not in (tmp_path / "x.db").read_bytes()
