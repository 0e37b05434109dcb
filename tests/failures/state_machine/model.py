"""The invariants of checkpoints as a small pure model: what a run must look like after each step."""

from __future__ import annotations

from dataclasses import dataclass, field

FRESH = "fresh"


@dataclass(slots=True)
class ModelCheckpoint:
    """What is known of one checkpoint. `content` is what every rank saves; `arrived` which ranks' manifests are in."""

    id: str
    attempt: str
    save: int
    step: int
    world_size: int
    content: int
    state: str = "open"
    sequence: int | None = None
    version: int = 1
    pinned: bool = False
    arrived: set[int] = field(default_factory=set)
    leases: dict[int, float] = field(default_factory=dict)
    deadline: float = 0.0
    deleted_at_versions: list[int] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.state == "open"

    @property
    def was_committed(self) -> bool:
        return self.state in ("committed", "deleted")


@dataclass(slots=True)
class ModelAttempt:
    """One attempt; `decision` is None until it resumed."""

    id: str
    launch_id: str
    ordinal: int
    world_size: int
    decision: str | None = None
    saves: int = 0


@dataclass(slots=True)
class ModelRun:
    """One run: its attempts in the order they began, and its checkpoints in the order they were opened."""

    attempts: dict[str, ModelAttempt] = field(default_factory=dict)
    checkpoints: dict[str, ModelCheckpoint] = field(default_factory=dict)
    current: str | None = None
    sequence: int = 0

    def begin(self, attempt: ModelAttempt) -> None:
        """A newer attempt: the fence moves, and whatever older ones had open is aborted."""
        self.attempts[attempt.id] = attempt
        self.current = attempt.id
        for checkpoint in self.checkpoints.values():
            if checkpoint.state == "open":
                checkpoint.state = "aborted"
                checkpoint.version += 1

    def decided_head(self) -> str | None:
        """The last attempt that decided: whose line is the run's."""
        decided = [attempt.id for attempt in self.attempts.values() if attempt.decision is not None]
        return decided[-1] if decided else None

    def line(self, head: str | None) -> list[ModelCheckpoint]:
        """Everything once committed on the line of `head`, newest first, walked back attempt by attempt."""
        found: list[ModelCheckpoint] = []
        bound: int | None = None
        while head is not None:
            own = [checkpoint for checkpoint in self.checkpoints.values() if checkpoint.attempt == head]
            found += [one for one in own if one.sequence is not None and (bound is None or one.sequence <= bound)]
            origin = self.checkpoints.get(self.attempts[head].decision or "")
            bound = origin.sequence if origin else None
            head = origin.attempt if origin else None
        return sorted(found, key=lambda checkpoint: -(checkpoint.sequence or 0))

    def latest(self, head: str | None = None) -> str | None:
        """The committed checkpoint with the highest sequence on the line."""
        for checkpoint in self.line(head or self.decided_head()):
            if checkpoint.state == "committed":
                return checkpoint.id
        return None

    def step_is_committed(self, attempt: str, step: int, *, besides: str | None = None) -> bool:
        """Whether the attempt has another committed checkpoint of this step."""
        return any(
            one.state == "committed" and one.step == step and one.id != besides
            for one in self.checkpoints.values()
            if one.attempt == attempt
        )

    def commit(self, checkpoint: ModelCheckpoint) -> None:
        """What must happen once every manifest is in: two version steps, validating and committed or aborted."""
        checkpoint.version += 2
        if self.step_is_committed(checkpoint.attempt, checkpoint.step):
            checkpoint.state = "aborted"
            return
        self.sequence += 1
        checkpoint.state, checkpoint.sequence = "committed", self.sequence

    def abort(self, checkpoint: ModelCheckpoint) -> None:
        """The end of an open checkpoint."""
        checkpoint.state = "aborted"
        checkpoint.version += 1
