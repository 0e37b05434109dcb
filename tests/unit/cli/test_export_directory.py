"""The directory a pull writes into."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardkeep.cli.exit_codes import CommandError, ExitCode
from shardkeep.cli.export_directory import INDEX_NAME, ExportDirectory


def names(path: Path) -> set[str]:
    return {file.name for file in path.iterdir()}


def test_files_appear_when_published_and_not_before(tmp_path: Path) -> None:
    with ExportDirectory(tmp_path / "new" / "out", overwrite=False) as directory:
        directory.write_text("values.json", "{}")
        assert "values.json" not in names(directory.path)
        directory.publish()
    assert names(tmp_path / "new" / "out") == {"values.json"}


def test_what_was_not_published_is_removed(tmp_path: Path) -> None:
    with ExportDirectory(tmp_path / "out", overwrite=False) as directory:
        directory.write_text("values.json", "{}")
    assert names(tmp_path / "out") == set()


def test_a_directory_with_files_is_refused_unless_overwrite_is_given(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CommandError, match=r"notes\.txt") as caught:
        ExportDirectory(tmp_path, overwrite=False)
    assert caught.value.exit_code is ExitCode.REFUSED


def test_overwrite_replaces_an_earlier_pull_and_keeps_other_files(tmp_path: Path) -> None:
    for name in ("notes.txt", INDEX_NAME, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        (tmp_path / name).write_text("old")
    with ExportDirectory(tmp_path, overwrite=True) as directory:
        directory.write_text("model.safetensors", "new")
        directory.write_text(INDEX_NAME, "new")
        directory.publish()
    assert names(tmp_path) == {"notes.txt", INDEX_NAME, "model.safetensors"}
    assert (tmp_path / INDEX_NAME).read_text() == "new"


def test_what_a_killed_pull_left_is_removed_and_does_not_count(tmp_path: Path) -> None:
    (tmp_path / ".model.safetensors.0123abcd.partial").write_text("half")
    with ExportDirectory(tmp_path, overwrite=False):
        assert names(tmp_path) == set()


def test_two_pulls_into_one_directory_are_refused(tmp_path: Path) -> None:
    with ExportDirectory(tmp_path, overwrite=False), pytest.raises(CommandError, match="another pull"):
        ExportDirectory(tmp_path, overwrite=False)


def test_a_file_in_the_way_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="is a file"):
        ExportDirectory(tmp_path / "file", overwrite=False)


def test_too_little_space_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with ExportDirectory(tmp_path, overwrite=False) as directory, pytest.raises(CommandError, match="free"):
        directory.check_space(1 << 62)
