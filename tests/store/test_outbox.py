"""What waits for a face: delivered where it was ordered, once, and kept when that fails."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from genericagent.errors import SessionError
from genericagent.store.outbox import Outbox


def test_a_message_goes_to_its_origin_once(tmp_path: Path) -> None:  # C160
    outbox = Outbox(tmp_path / "outbox", lambda: 7.0)
    assert outbox.put("r1", "telegram:1", "job", "for A") and outbox.put("r2", "terminal", "job", "for the terminal")
    assert not outbox.put("r1", "telegram:2", "job", "again"), "a run that is told twice is delivered once"
    assert [m["text"] for m in outbox.pending("telegram:1")] == ["for A"] and outbox.pending("telegram:2") == []
    assert outbox.ack("r1") and not outbox.ack("r1")
    assert outbox.pending("telegram:1") == [] and not outbox.put("r1", "telegram:1", "job", "again")
    assert "for A" in (tmp_path / "outbox" / "done" / "r1.json").read_text()
    assert (tmp_path / "outbox").stat().st_mode & 0o077 == 0


def test_one_of_several_faces_delivers(tmp_path: Path) -> None:  # C160
    outbox, won = Outbox(tmp_path), list[bool]()
    outbox.put("r", "terminal", "t", "x")
    threads = [threading.Thread(target=lambda: won.append(Outbox(tmp_path).ack("r"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 7 + [True]


def test_a_failure_is_kept_with_its_reason(tmp_path: Path) -> None:  # C160
    outbox = Outbox(tmp_path)
    outbox.put("r", "telegram:404", "job", "text")
    for n in range(30):
        outbox.fail("r", f"chat not found {n}")
    (message,) = outbox.pending()
    assert message["failures"][-1]["why"] == "chat not found 29" and len(message["failures"]) == 20
    outbox.fail("gone", "x")
    assert len(outbox.pending()) == 1


@pytest.mark.parametrize("id", ["", "../x", ".lock", "a/b", "x" * 200])
def test_an_id_is_a_file_name(tmp_path: Path, id: str) -> None:
    with pytest.raises(SessionError):
        Outbox(tmp_path).put(id, "terminal", "t", "x")


def test_a_damaged_message_hides_no_other_and_stays(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.put("good", "terminal", "t", "x")
    (tmp_path / "half.json").write_text('{"id": "half", "orig')
    (tmp_path / "list.json").write_text("[1]")
    assert [m["id"] for m in outbox.pending()] == ["good"] and (tmp_path / "half.json").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"created": 1e18},
        {"created": float("nan")},
        {"failures": 5},
        {"failures": [5]},
        {"created": []},
        {"created": True, "failures": {}},
    ],
)
def test_a_damaged_message_keeps_no_other_from_being_shown(tmp_path: Path, change: dict[str, Any]) -> None:
    box = Outbox(tmp_path, lambda: 1.0)
    box.put("good", "terminal", "t", "words")
    message = json.loads((tmp_path / "good.json").read_text())
    (tmp_path / "bad.json").write_text(json.dumps({**message, **change}))
    os.mkfifo(tmp_path / "pipe.json")
    assert "good" in [m["id"] for m in box.pending("terminal")]
    assert all(m["failures"] == [] and 0 <= m["created"] < 1e11 for m in box.pending())
