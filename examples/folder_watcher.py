"""A watcher: has each new PDF of a folder named after what is in it.    ga --reflect examples/folder_watcher.py --folder ~/Downloads"""

from __future__ import annotations

from pathlib import Path

INTERVAL = 2  # seconds between two looks
folder = Path("~/Downloads")
seen: set[Path] = set()


def init(args: dict[str, str]) -> None:
    global folder
    if odd := args.keys() - {"folder"}:
        raise ValueError(f"no such option: {', '.join(odd)}")
    folder = Path(args.get("folder", folder)).expanduser()
    seen.update(folder.glob("*.pdf"))  # what is there already stays as it is


def check() -> str | None:
    new = sorted(set(folder.glob("*.pdf")) - seen)
    if not new:
        return None  # costs nothing
    seen.add(new[0])
    return f"Read {new[0]} and say in one line what it is and how it should be named."
