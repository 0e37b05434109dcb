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
    shows_markup: bool = False
    """Whether a text with markup of somebody's own is on it."""

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
    PageAt("run-attempts", f"{RUN}?view=attempts", shows_markup=True),
    PageAt("run-resume", f"{RUN}?view=resume"),
    PageAt("run-untouched", f"/runs/{PROJECT}/untouched"),
    PageAt("run-untouched-times", f"/runs/{PROJECT}/untouched?view=times"),
    PageAt("run-untouched-attempts", f"/runs/{PROJECT}/untouched?view=attempts"),
    PageAt("run-unknown", f"/runs/{PROJECT}/unknown"),
    PageAt("checkpoint", CHECKPOINT, shows_markup=True),
    PageAt("checkpoint-ranks", f"{CHECKPOINT}?view=ranks"),
    PageAt("checkpoint-tensors", f"{CHECKPOINT}?view=tensors&tensor=model.embed.weight", shows_markup=True),
    PageAt("checkpoint-values", f"{CHECKPOINT}?view=values", shows_markup=True),
    PageAt("checkpoint-resume", f"{CHECKPOINT}?view=resume"),
    PageAt("checkpoint-aborted", "/checkpoints/{aborted}", shows_markup=True),
    PageAt("checkpoint-deleted", "/checkpoints/{deleted}"),
    PageAt("checkpoint-damaged", "/checkpoints/{damaged}?view=damage"),
    PageAt("checkpoint-open", "/checkpoints/{open}"),
    PageAt("checkpoint-pinned", "/checkpoints/{second}", shows_markup=True),
    PageAt("difference", "/checkpoints/{latest}/differences/{second}", shows_markup=True),
    PageAt("saves", "/saves?save={open}"),
    PageAt("saves-ended", "/saves?save={aborted}"),
    PageAt("retention", f"/retention/{PROJECT}?dry=in_force", shows_markup=True),
    PageAt("retention-of-run", f"/retention/{PROJECT}?run=baseline"),
    PageAt("integrity", "/integrity"),
    PageAt("integrity-resolved", "/integrity?show=resolved"),
    PageAt("access", "/access"),
    PageAt("access-all", "/access?all=true", shows_markup=True),
    PageAt("projects", "/projects?project=demo"),
    PageAt("projects-deleted", "/projects?deleted=true"),
    PageAt("audit", "/audit", shows_markup=True),
    PageAt("system", "/system"),
    PageAt("no-such-page", "/no/such/page"),
)
