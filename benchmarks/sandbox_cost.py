"""What the sandbox costs a call: `python benchmarks/sandbox_cost.py [RUNS]`.

`true` in code_run, with and without, in turns, so that a busy machine slows both; the figure is the median difference.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness import ROOT, Row
from run import HEAD, line

from genericagent.safety.sandbox import Sandbox, why_not
from genericagent.safety.zones import Zones
from genericagent.tools.code_run import code_run

RUNS, REACH = 50, 15.0  # ms


def main() -> int:
    rows = list(sandbox(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS))
    print("\n".join([HEAD, *map(line, rows)]))
    return any(row.verdict == "MISSED" for row in rows)


def sandbox(runs: int = RUNS) -> Iterator[Row]:
    """None where there is no sandbox."""
    for name, fill in (("empty", _empty), ("this repository", _clone), ("20,000 files", _many)):
        with tempfile.TemporaryDirectory() as folder:
            base = Path(folder).resolve()
            for own in ("ga/temp/_output", "ga/memory", "user"):
                (base / own).mkdir(parents=True)
            fill(base / "ws")
            box = Sandbox(Zones(base / "ws", base / "ga", Path.home()), net=False)
            if fault := why_not(box):
                print(f"no sandbox here: {fault}")
                return
            time.sleep(0.1)  # what was made just now is listed anew at the next look
            plain, boxed = [], []
            for _ in range(runs):
                plain.append(_call(base, None))
                boxed.append(_call(base, box))
        added = statistics.median(b - p for p, b in zip(plain, boxed, strict=True))
        note = f"median of {runs}: {statistics.median(plain):.1f} ms without, {statistics.median(boxed):.1f} ms with, {boxed[0]:.1f} the first time"
        yield Row(f"a sandboxed `true`, added; workspace: {name}", added, "ms", REACH, note)


def _empty(ws: Path) -> None:
    (ws / ".git/hooks").mkdir(parents=True)
    (ws / ".git/config").touch()


def _clone(ws: Path) -> None:
    subprocess.run(["git", "-c", "safe.directory=*", "clone", "-q", str(ROOT), str(ws)], check=True)


def _many(ws: Path) -> None:
    _empty(ws)
    for n in range(20_000):
        if n % 100 == 0:
            (ws / f"{n // 100}").mkdir()
        (ws / f"{n // 100}/{n}").touch()


def _call(base: Path, sandbox: Sandbox | None) -> float:
    begin = time.perf_counter()
    list(code_run("true", "bash", 30, base / "ws", spool_dir=base / "ga/temp/_output", sandbox=sandbox))
    return (time.perf_counter() - begin) * 1000


if __name__ == "__main__":
    sys.exit(main())
