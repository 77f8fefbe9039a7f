"""The ledger of the day: whole lines from many processes, and no cap crossed by two at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from genericagent.errors import SessionError
from genericagent.store.ledger import FORGOTTEN, Ledger

TOKENS = {"input": 10, "output": 2, "cache_read": 5, "cache_write": 1}
ROOT = Path(__file__).parents[2]
NOON = 1_800_000_000.0


def test_what_one_process_spends_another_sees(tmp_path: Path) -> None:
    one, other = Ledger(tmp_path / "spend", lambda: NOON), Ledger(tmp_path / "spend", lambda: NOON)
    one.settle(None, 0.5, TOKENS)
    other.settle(None, 0.25, TOKENS)
    one.settle(None, None, TOKENS)
    day = other.today()
    assert (day.cost, day.requests, day.unpriced) == (0.75, 3, 1) and day.tokens["input"] == 30
    assert (tmp_path / "spend").stat().st_mode & 0o077 == 0


def test_a_new_day_begins_at_nothing(tmp_path: Path) -> None:
    now = [NOON]
    ledger = Ledger(tmp_path, lambda: now[0])
    ledger.settle(None, 1.0, TOKENS)
    now[0] += 86400
    assert ledger.today().cost == 0 and ledger.reserve(1.0, 1.0)
    ledger.settle(None, 2.0, TOKENS)
    now[0] -= 86400
    assert ledger.today().cost == 1.0


def test_what_is_counted_ahead_binds_until_it_is_settled(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, lambda: NOON)
    token = ledger.reserve(0.6, 1.0)
    assert token and ledger.reserve(0.5, 1.0) is None and ledger.committed() == pytest.approx(0.6)
    ledger.settle(token, 0.1, TOKENS)
    assert ledger.committed() == pytest.approx(0.1) and ledger.reserve(0.9, 1.0)


def test_reservations_of_the_dead_and_the_forgotten_do_not_count(tmp_path: Path) -> None:
    now = [NOON]
    ledger = Ledger(tmp_path, lambda: now[0])
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    line = f'{{"at": {NOON}, "pid": {pid}, "reserve": "dead", "amount": 0.9}}\n'
    ledger.settle(None, 0.0, TOKENS)
    (file,) = tmp_path.glob("*.jsonl")
    file.write_text(file.read_text() + line)
    assert ledger.committed() == 0
    assert ledger.reserve(0.9, 1.0) and ledger.committed() == pytest.approx(0.9)
    now[0] += FORGOTTEN + 1
    assert ledger.committed() == 0


@pytest.mark.parametrize(
    "junk", [b"half a li", b"\0" * 100 + b"\n", b"[]\n", b'{"at": "x"}\n', b'{"at": 1, "pid": 1, "cost": "much"}\n']
)
def test_damaged_lines_are_skipped(tmp_path: Path, junk: bytes) -> None:
    ledger = Ledger(tmp_path, lambda: NOON)
    ledger.settle(None, 0.5, TOKENS)
    (file,) = tmp_path.glob("*.jsonl")
    file.write_bytes(file.read_bytes() + junk)
    assert Ledger(tmp_path, lambda: NOON).today().cost == 0.5


def test_a_ledger_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "spend").mkdir()
    ledger = Ledger(tmp_path / "spend", lambda: NOON)
    ledger.today()
    ledger._file().mkdir()
    with pytest.raises(SessionError, match="cannot"):
        ledger.settle(None, 0.5, TOKENS)


def test_half_a_line_does_not_take_the_next_one(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, lambda: NOON)
    ledger.settle(None, 0.5, TOKENS)
    (file,) = tmp_path.glob("*.jsonl")
    file.write_bytes(file.read_bytes() + b'{"at": 1, "pi')
    ledger.settle(None, 0.25, TOKENS)
    assert ledger.today().cost == Ledger(tmp_path, lambda: NOON).today().cost == 0.75


def test_a_pipe_as_ledger_is_an_error_and_nothing_waits(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, lambda: NOON)
    ledger.today()
    os.mkfifo(ledger._file())
    for call in (ledger.today, lambda: ledger.settle(None, 0.5, TOKENS), lambda: ledger.reserve(0.1, 1.0)):
        with pytest.raises(SessionError, match="not a regular file|No such device"):
            call()


SPEND = """
import sys
from pathlib import Path
from genericagent.store.ledger import Ledger
ledger, made = Ledger(Path(sys.argv[1]), lambda: 1_800_000_000.0), 0
for _ in range(100):
    if token := ledger.reserve(1 / 64, 1.0):
        ledger.settle(token, 1 / 64, {"input": 1, "output": 1, "cache_read": 0, "cache_write": 0})
        made += 1
print(made)
"""


def test_processes_together_never_cross_the_cap(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SPEND, str(tmp_path)]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    made = [int(process.communicate(timeout=60)[0]) for process in running]
    day = Ledger(tmp_path, lambda: NOON).today()
    assert sum(made) == day.requests == 64 and day.cost == 1.0
