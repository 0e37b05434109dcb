"""The principal: who a request comes from, and which projects it may see."""

from __future__ import annotations

from dataclasses import dataclass

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access.scopes import Scope
from shardkeep_service.errors import Refusal


@dataclass(frozen=True, slots=True)
class Principal:
    """A valid token. `project_id` is None for tokens that see every project; `expires_at` is in microseconds."""

    token_id: str
    name: str
    scope: Scope
    project_id: str | None
    expires_at: int | None = None

    @property
    def is_admin(self) -> bool:
        """Whether it may do everything (in its project, if it has one)."""
        return self.scope.includes(Scope.ADMIN)

    def sees(self, project_id: str) -> bool:
        """Whether the project exists as far as this token is concerned."""
        return self.project_id is None or self.project_id == project_id

    def check_project(self, project_id: str, *, code: ErrorCode = ErrorCode.UNKNOWN_PROJECT) -> None:
        """Refuses a project out of the token's reach exactly like one that does not exist.

        `code` is what an absent thing of the kind asked for is answered with, `unknown_checkpoint` say.
        """
        if not self.sees(project_id):
            raise Refusal(code, UNSEEN[code])


UNSEEN = {
    ErrorCode.UNKNOWN_PROJECT: "there is no such project, or the token may not see it: check its name, or"
    " create it with an admin token",
    ErrorCode.UNKNOWN_RUN: "there is no such run, or the token may not see its project: check its name and the token",
    ErrorCode.UNKNOWN_ATTEMPT: "there is no such attempt, or the token may not see its project: begin one, or"
    " check the token",
    ErrorCode.UNKNOWN_CHECKPOINT: "there is no such checkpoint, or the token may not see its project: ask the"
    " run for its checkpoints",
}
"""One sentence for absent and for hidden, so that an answer does not tell which it was."""
