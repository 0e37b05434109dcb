"""The principal: who a request comes from, and which projects and runs it may see."""

from __future__ import annotations

from dataclasses import dataclass

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access.scopes import Scope
from shardkeep_service.errors import Refusal


@dataclass(frozen=True, slots=True)
class Principal:
    """A valid token. `project_ids` is None for tokens that see every project; `expires_at` is in microseconds."""

    token_id: str
    name: str
    scope: Scope
    project_ids: frozenset[str] | None
    expires_at: int | None = None
    run_id: str | None = None
    """The only run a job's token may touch."""

    @property
    def is_admin(self) -> bool:
        """Whether it may do everything (in its projects, if it is bound to some)."""
        return self.scope.includes(Scope.ADMIN)

    def sees(self, project_id: str) -> bool:
        """Whether the project exists as far as this token is concerned."""
        return self.project_ids is None or project_id in self.project_ids

    def sees_run(self, project_id: str, run_id: str) -> bool:
        """Whether the run, and what belongs to it, exists as far as this token is concerned."""
        return self.sees(project_id) and self.run_id in (None, run_id)

    def check_project(self, project_id: str, *, code: ErrorCode = ErrorCode.UNKNOWN_PROJECT) -> None:
        """Refuses a project out of the token's reach exactly like one that does not exist.

        `code` is what an absent thing of the kind asked for is answered with.
        """
        if not self.sees(project_id):
            raise Refusal(code, UNSEEN[code])

    def check_run(self, project_id: str, run_id: str, *, code: ErrorCode = ErrorCode.UNKNOWN_RUN) -> None:
        """Refuses a run out of the token's reach, and what belongs to it, exactly like one that does not exist."""
        if not self.sees_run(project_id, run_id):
            raise Refusal(code, UNSEEN[code])

    def check_sees_whole_projects(self) -> None:
        """Refusal `scope_too_narrow` for a job's token, where an answer would speak of other runs too."""
        if self.run_id is not None:
            raise Refusal(
                ErrorCode.SCOPE_TOO_NARROW,
                f"{self.name!r} is a job's token and sees its run only; ask about the run, or use another token",
            )


UNSEEN = {
    ErrorCode.UNKNOWN_PROJECT: "there is no such project, or the token may not see it: check its name, or"
    " create it with an admin token",
    ErrorCode.UNKNOWN_RUN: "there is no such run, or the token may not see its project: check its name and the token",
    ErrorCode.UNKNOWN_ATTEMPT: "there is no such attempt, or the token may not see its project: begin one, or"
    " check the token",
    ErrorCode.UNKNOWN_CHECKPOINT: "there is no such checkpoint, or the token may not see its project: ask the"
    " run for its checkpoints",
    ErrorCode.UNKNOWN_TOKEN: "there is no such token, or it reaches beyond the projects of the token that asks: list"
    " the tokens for their ids",
}
"""One sentence for absent and for hidden, so that an answer does not tell which it was."""
