"""The figures: `python benchmarks/run.py [NAME …] [--json] [--write]`, or `make bench ARGS="start turn"`."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import sys
from pathlib import Path

from figures import FIGURES
from harness import Row

from genericagent import __version__

RESULTS = Path(__file__).parent / "RESULTS.md"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help=f"one or more of {', '.join(FIGURES)} (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/RESULTS.md")
    args = parser.parse_args()
    if unknown := set(args.name) - set(FIGURES):
        parser.error(f"no such figure: {', '.join(unknown)}")
    rows: list[Row] = []
    if not args.json:
        print(HEAD)
    for name in args.name or FIGURES:
        for row in FIGURES[name]():
            rows.append(row)
            if not args.json:
                print(line(row), flush=True)
    if args.json:
        results = [{**vars(row), "verdict": row.verdict} for row in rows]
        print(json.dumps({**machine(), "figures": results}, ensure_ascii=False, indent=1))
    if args.write:
        write(rows, whole=not args.name)
    return any(row.verdict == "MISSED" for row in rows)


HEAD = "| figure | measured | reach | | how |\n|---|---|---|---|---|"


def line(row: Row) -> str:
    value = f"{row.value:.0f}" if row.value >= 100 or row.value == int(row.value) else f"{row.value:.3g}"
    reach = "" if row.reach is None else f"{'≥' if row.least else '≤'} {row.reach:g}"
    return f"| {row.figure} | {value} {row.unit} | {reach} | {row.verdict} | {row.note} |"


def machine() -> dict[str, str]:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.M)):
        cpu = found[1]
    return {
        "date": datetime.date.today().isoformat(),
        "version": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} × {cpu}",
    }


def write(rows: list[Row], *, whole: bool) -> None:
    """Replace the lines of the figures measured now; those of others stay, unless all were measured (`whole`)."""
    text = RESULTS.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    kept = {found[1]: found[0] for found in re.finditer(r"^\| ([^|]+?) \|.*$", old, re.M)}
    for head in ("figure", "---"):
        kept.pop(head, None)
    if whole:
        kept.clear()
    kept |= {row.figure: line(row) for row in rows}
    about = machine()
    title = f"genericagent {about['version']}, {about['date']}, Python {about['python']}, {about['machine']}"
    table = "\n".join([HEAD, *kept.values()])
    RESULTS.write_text(f"{before}{BEGIN}\n{title}\n\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
