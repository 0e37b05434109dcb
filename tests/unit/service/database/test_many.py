"""Looking up many values in one parameter finds them all, and by the index."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Integer, String, create_engine, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from shardkeep_service.database.database import Database
from shardkeep_service.database.many import among_integers, among_texts


class Base(DeclarativeBase):
    pass


class Word(Base):
    __tablename__ = "words"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    word: Mapped[str] = mapped_column(String(64), unique=True)


BY_WORD = select(Word.id).where(among_texts(Word.word)).order_by(Word.id)
BY_ID = select(Word.word).where(among_integers(Word.id)).order_by(Word.id)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    found = Database(f"sqlite:///{tmp_path / 'x.db'}")
    Base.metadata.create_all(found.engine)
    with found.write() as session:
        session.add_all([Word(id=number, word=f"word '{number}'\"") for number in range(100)])
    return found


def test_many_texts_and_many_integers_are_found(database: Database) -> None:
    with database.read() as session:
        assert session.scalars(BY_WORD, {"texts": ["word '7'\"", "word '42'\"", "no"]}).all() == [7, 42]
        assert session.scalars(BY_ID, {"integers": [42, 7, 1000, 2**62]}).all() == ["word '7'\"", "word '42'\""]
        assert session.scalars(BY_ID, {"integers": []}).all() == []


def test_the_index_is_used(database: Database) -> None:
    """Comparing the condition with 1, as SQLAlchemy does with other conditions on SQLite, would read every row."""
    sql = str(BY_WORD.compile(database.engine))
    with database.read() as session:
        plan = " ".join(
            str(row)
            for row in session.execute(text(f"EXPLAIN QUERY PLAN {sql.replace('?', ':words')}"), {"words": '["a"]'})
        )
    assert "SEARCH words USING" in plan, plan
    assert "SCAN words" not in plan, plan


def test_postgresql_is_given_one_array() -> None:
    sql = str(BY_ID.compile(create_engine("postgresql+psycopg://nowhere")))
    assert "words.id = ANY(" in sql, sql
