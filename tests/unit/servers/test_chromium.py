"""The Chromium of the tests: what counts as one, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.chromium import PROGRAM_VARIABLE, Attempted, NoChromium, no_chromium_text, working_chromium


def program(path: Path, text: str, *, code: int = 0) -> Path:
    path.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
    path.chmod(0o755)
    return path


def test_a_browser_on_the_path_is_taken(tmp_path: Path) -> None:
    found = program(tmp_path / "chromium", "Chromium 156.0")
    assert working_chromium({"PATH": str(tmp_path)}) == found


def test_a_stub_that_only_says_how_to_install_one_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "chromium", "install the snap", code=1)
    found = program(tmp_path / "google-chrome", "Google Chrome 156.0")
    assert working_chromium({"PATH": str(tmp_path)}) == found


def test_the_browser_that_the_environment_names_goes_first(tmp_path: Path) -> None:
    program(tmp_path / "chromium", "Chromium 156.0")
    named = program(tmp_path / "mine", "Chromium 157.0")
    assert working_chromium({"PATH": str(tmp_path), PROGRAM_VARIABLE: str(named)}) == named


def test_one_that_the_environment_names_and_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoChromium, match=PROGRAM_VARIABLE):
        working_chromium({"PATH": "", PROGRAM_VARIABLE: str(tmp_path / "missing")})


def test_what_is_said_where_there_is_none_tells_what_to_do_and_what_was_tried() -> None:
    text = no_chromium_text([Attempted("apt-get install chromium", "apt-get -q update ended with 100: no route")])
    assert "apt-get install chromium" in text
    assert PROGRAM_VARIABLE in text
    assert "no route" in text
