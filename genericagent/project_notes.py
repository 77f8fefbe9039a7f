"""AGENTS.md of the workspace: what a project wants of whoever works in it, for the system prompt.

It is somebody's text in a folder that may have been cloned. So it is short, visible, marked, and grants nothing: what is
allowed is decided elsewhere, by what the user said and configured.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from .errors import ToolError
from .llm.usage import estimate
from .prompts import say
from .safety.confine import Confinement
from .safety.fence import disarm
from .safety.guard import zones_of
from .safety.policy import Action, Rules, ruled_out
from .safety.term import clean, one_line
from .safety.zones import NOTES, UNSEEN

MOST = 2000  # tokens that join the prompt
LARGEST = 256 << 10  # bytes that are looked at


@dataclass(frozen=True)
class Notes:
    """`section`: for the end of the system prompt; `line`: for the user, what joined or why not. Both may be ""."""

    section: str = ""
    line: str = ""


def read_notes(workspace: Path, rules: Rules) -> Notes:
    """Those of a workspace that the user chose: of the first of NOTES that is there, never of both. Nothing is read that lies
    elsewhere in truth, that is no ordinary file, or that a rule of the user's is about."""
    zones = zones_of(workspace)
    name = next((name for name in NOTES if os.path.lexists(workspace / name)), "")
    if not name or zones.workspace.is_relative_to(zones.home):
        return Notes()
    try:
        path = Path(os.path.realpath(workspace / name))
        if zones.of(path) != "workspace" or ruled_out(Action("file_read", "read", (str(path),)), rules):
            raise ToolError(say("notes_elsewhere", path=path))
        with Confinement(zones).open(path) as file:
            data = file.read(LARGEST)
            whole = not file.read(1)
    except (ToolError, OSError) as error:
        return Notes(line=say("notes_left_out", name=name, why=error))
    text, all_of_it = _shortened(clean(UNSEEN.sub("", data.decode("utf-8-sig", "replace"))).strip())
    cut = not (whole and all_of_it)
    if not text and not cut:
        return Notes()
    count = estimate(text)
    tokens = f"{count / 1000:.1f}k" if count >= 1000 else count
    # an end that the text cannot hold, and the same from turn to turn, so that the prompt stays in the cache
    mark = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
    rest = say("notes_rest", path=one_line(str(path), 500)) if cut else ""
    section = say("notes", name=name, mark=mark, text=disarm(text), rest=rest)
    return Notes(section, say("notes_cut" if cut else "notes_joined", name=name, tokens=tokens))


def _shortened(text: str) -> tuple[str, bool]:
    """(as many whole lines as fit, whether that is all)."""
    kept, used = list[str](), 0
    for line in text.split("\n"):
        used += estimate(f"{line}\n")
        if used > MOST:
            return "\n".join(kept), False
        kept.append(line)
    return text, True
