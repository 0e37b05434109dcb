"""A small reader of Dockerfiles: stages, their instructions, and build arguments in FROM."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stage:
    """One FROM and what follows it: `instructions` are (word, rest) pairs."""

    image: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def last(self, word: str) -> str | None:
        return next((rest for found, rest in reversed(self.instructions) if found == word), None)

    def all(self, word: str) -> list[str]:
        return [rest for found, rest in self.instructions if found == word]

    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for rest in self.all("ENV") for pair in rest.split())


def stages_of(text: str) -> list[Stage]:
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for line in _logical_lines(text):
        word, _, rest = line.partition(" ")
        word, rest = word.upper(), rest.strip()
        if word == "ARG" and not stages:
            name, _, value = rest.partition("=")
            arguments[name] = value
        elif word == "FROM":
            image, _, name = re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], rest).partition(" AS ")
            stages.append(Stage(image.strip(), name.strip()))
        else:
            stages[-1].instructions.append((word, rest))
    return stages


def exec_form(rest: str | None) -> list[str]:
    """The words of `["a", "b"]`; a shell form is an error here, since signals would not reach the process."""
    assert rest is not None
    found = json.loads(rest[rest.index("[") :])
    assert isinstance(found, list)
    return [str(word) for word in found]


def _logical_lines(text: str) -> list[str]:
    kept = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return [" ".join(line.split()) for line in re.sub(r"\\\n", " ", "\n".join(kept)).splitlines()]
