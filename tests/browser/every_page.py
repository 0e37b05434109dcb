"""Every page of the dashboard, and each of its tabs: where it is in a filled service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.browser.filled_service import PROJECT, Filled

RUN: Final = f"/runs/{PROJECT}/transformer"
CHECKPOINT: Final = "/checkpoints/{latest}"


@dataclass(frozen=True, slots=True)
class PageAt:
    """A page by a name for its screenshot; `path` names checkpoints by the fields of `Filled`."""

    name: str
    path: str
    signed_in: bool = True

    def url(self, filled: Filled) -> str:
        """Its path below /ui in this service."""
        names = ("first", "second", "latest", "off_line", "aborted", "deleted", "damaged", "open")
        return self.path.format_map({name: getattr(filled, name) for name in names})


EVERY_PAGE: Final = (
    PageAt("sign-in", "/sign-in", signed_in=False),
    PageAt("overview", "/"),
    PageAt("runs", "/runs"),
    PageAt("runs-deleted", "/runs?tab=deleted"),
    PageAt("runs-nothing-found", "/runs?search=nothing-is-called-so"),
    PageAt("run", RUN),
    PageAt("run-times", f"{RUN}?view=times"),
    PageAt("run-attempts", f"{RUN}?view=attempts"),
    PageAt("run-resume", f"{RUN}?view=resume"),
    PageAt("run-untouched", f"/runs/{PROJECT}/untouched"),
    PageAt("run-unknown", f"/runs/{PROJECT}/unknown"),
    PageAt("checkpoint", CHECKPOINT),
    PageAt("checkpoint-ranks", f"{CHECKPOINT}?view=ranks"),
    PageAt("checkpoint-tensors", f"{CHECKPOINT}?view=tensors&tensor=model.embed.weight"),
    PageAt("checkpoint-values", f"{CHECKPOINT}?view=values"),
    PageAt("checkpoint-resume", f"{CHECKPOINT}?view=resume"),
    PageAt("checkpoint-aborted", "/checkpoints/{aborted}"),
    PageAt("checkpoint-deleted", "/checkpoints/{deleted}"),
    PageAt("checkpoint-damaged", "/checkpoints/{damaged}?view=damage"),
    PageAt("checkpoint-open", "/checkpoints/{open}"),
    PageAt("checkpoint-pinned", "/checkpoints/{second}"),
    PageAt("difference", "/checkpoints/{latest}/differences/{second}"),
    PageAt("saves", "/saves?save={open}"),
    PageAt("retention", f"/retention/{PROJECT}?dry=in_force"),
    PageAt("retention-of-run", f"/retention/{PROJECT}?run=baseline"),
    PageAt("integrity", "/integrity"),
    PageAt("integrity-resolved", "/integrity?show=resolved"),
    PageAt("access", "/access"),
    PageAt("access-all", "/access?all=true"),
    PageAt("projects", "/projects?project=demo"),
    PageAt("projects-deleted", "/projects?deleted=true"),
    PageAt("audit", "/audit"),
    PageAt("system", "/system"),
    PageAt("no-such-page", "/no/such/page"),
)
