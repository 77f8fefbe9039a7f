"""Sessions are found by their words, in every script, whatever is asked and whatever happens to the index."""

from __future__ import annotations

import errno
import gzip
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genericagent import paths
from genericagent.errors import SessionError
from genericagent.safety.redact import Redactor
from genericagent.store import archive, search
from genericagent.store.journal import Journal, encode
from genericagent.store.lock import FileLock

Worker = Callable[..., "subprocess.Popen[str]"]
NOW, DAY = 1_800_000_000.0, 86400.0


def message(role: str, *blocks: Any, **more: Any) -> dict[str, Any]:
    texts = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    return {"type": "message", "message": {"role": role, "content": texts, **more}}


def made(id: str, request: str = "", *records: dict[str, Any], days: float = 1, **header: str) -> Path:
    head: list[dict[str, Any]] = [
        {"type": "session", "v": 1, "id": id, "created": 5.0, "cwd": "/tmp", "llm": "m", **header},
        {"type": "line", "text": f"[USER]: {request}"},
        message("user", request, request=True),
    ]
    paths.sessions().mkdir(exist_ok=True)
    path = paths.sessions() / f"{id}.jsonl"
    path.write_bytes(b"".join(map(encode, [*head, *records])))
    os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    return path


def test_going_on_means_a_watchers_conversation() -> None:
    assert search.newest() == ""
    mine = made("20250101-000000-aaaaaa", "mine", {"type": "task", "event": "start", "source": "user"}, days=3)
    made("20250102-000000-bbbbbb", "a round", {"type": "task", "event": "start", "source": "reflect:goal"}, days=2)
    made("20250103-000000-cccccc", "a part", {"type": "task", "event": "start", "source": "file"}, days=1)
    assert search.newest() == str(mine) and search.find(search.newest()) == mine
    newer = made("20250104-000000-dddddd", "an old version's", days=0)
    assert search.newest() == str(newer)


def test_who_ran_a_session_is_forgotten() -> None:
    made("20250101-000000-aaaaaa", "a zebra of mine", {"type": "task", "event": "start", "source": "user"}, days=3)
    made(
        "20250102-000000-bbbbbb", "a zebra round", {"type": "task", "event": "start", "source": "reflect:goal"}, days=2
    )
    made("20250103-000000-cccccc", "a zebra part", days=1, by="subagent")
    assert [s.by for s in search.listing()[0]] == ["subagent", "watcher", ""]
    assert [hit.session.by for hit in search.search("zebra", 0, NOW, everything=False)[0]] == [""]
    assert len(found("zebra")) == 3


def found(query: str, since: float = 0.0, **how: Any) -> list[str]:
    return [hit.session.id for hit in search.search(query, since, NOW, **how)[0]]


# words


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("我在找一只斑马，不是马", ["斑", "马", "斑马", "一只斑马", "找 马", "斑马 zebra", "只 zeb", '"一只斑马"']),
        ("東京でシマウマを見た", ["京", "シマウマ", "ウマ", "でシ", "見た"]),
        ("얼룩말을 찾아라", ["말", "얼룩", "룩말", "찾아"]),
        ("ม้าลายในป่า", ["ม้าลาย", "ป่า"]),
        ("𠮷野家で", ["𠮷", "野家", "𠮷野家"]),
        ("半角ｼﾏｳﾏ", ["ｼﾏ", "ｳ"]),
        ("Größe und café, naïve Straße", ["größe", "cafe", "CAFÉ", "naive", "stra"]),
        ("call my_function(x) in src/main.py", ["my_function", "function", "main.py", "src/main.py", "(x)", "MAIN"]),
        ("C++ and a1b2c3d4", ["C++", "c", "a1b2", "a1b2c3d4"]),
        ("Это зебра в лесу", ["зебра", "ЗЕБ", "лесу"]),
    ],
)
def test_a_query_in_any_script_finds_its_text(text: str, queries: list[str]) -> None:
    made("hit", f"{text} zebra")
    made("other", "nothing of the kind")
    for query in queries:
        assert found(query) == ["hit"], query
        hit = search.search(query, 0, NOW)[0][0]
        assert hit.session.title == f"{text} zebra" and search._SPLIT not in hit.around


def test_all_words_have_to_be_there_and_quoted_ones_together() -> None:
    made("a", "the striped zebra sleeps")
    made("b", "a zebra that is striped")
    assert sorted(found("zebra striped")) == ["a", "b"] and found("zebra horse") == []
    assert found('"striped zebra"') == ["a"] and found('"striped zebra" sleeps') == ["a"]
    assert found("马斑") == [] and found("zebras") == [] and found("ebra") == []


@pytest.mark.parametrize("query", [
    "", " ", '"', '""', '"""', "'", "(", ")", "*", "zebra*", "-zebra", "NOT zebra", "zebra OR", "AND", "NEAR(zebra)", "title:zebra",
    "{zebra}:", "^zebra", "zebra + x", "a\0b", "\ud800", "\x1b[2J", "zebra\x1fx", "%", "\\", ";drop table files", "?", "？！", "🦓",
    "x " * 5000, "马" * 5000, '"' * 999, "a" * 5000, ":" * 50 + "zebra", "zebra/..", "𝔷𝔢𝔟", "١٢٣", "½", "²",
])  # fmt: skip
def test_no_query_is_an_error(query: str) -> None:
    made("hit", "the zebra")
    assert found(query) in ([], ["hit"])
    assert search.search(query, 0, NOW, redact=lambda text: text)[1] == []
    assert found("zebra") == ["hit"], "nothing was harmed"


def test_operators_are_words() -> None:
    made("a", "this or that")
    made("b", "not near the title")
    assert found("OR") == ["a"] and found("NOT NEAR") == ["b"] and found("title:") == ["b"]


@pytest.fixture(scope="module")
def index() -> sqlite3.Connection:
    return search._opened(None)


@settings(max_examples=300)
@given(st.text(max_size=60), st.text(max_size=200))
def test_a_query_of_any_shape_is_harmless_and_a_text_finds_itself(
    index: sqlite3.Connection, query: str, text: str
) -> None:
    index.execute("DELETE FROM texts")
    index.execute("INSERT INTO texts VALUES ('', ?, '')", (search._apart(search._clean(text)),))

    def hits(query: str) -> int:
        words = search._words(query)
        search._around(text, words or ["x"], 80)
        match = " AND ".join(map(search._phrase, words))
        return len(index.execute("SELECT 1 FROM texts WHERE texts MATCH ?", (match,)).fetchall()) if words else 0

    hits(query)
    plain = "".join(c for c in text if c.isascii() and c not in '"\0')
    if search._words(plain):
        index.execute("DELETE FROM texts")
        index.execute("INSERT INTO texts VALUES ('', ?, '')", (search._apart(search._clean(plain)),))
        assert hits(plain) == 1


# what is searched


def test_what_both_wrote_is_found_and_what_tools_said_is_not() -> None:
    call = {
        "type": "tool_use",
        "id": "t",
        "name": "code_run",
        "input": {"type": "bash", "script": "pip install wombat" + " x" * 200 + " tail"},
    }
    answer = {"type": "tool_result", "tool_use_id": "t", "content": "outputword"}
    made(
        "a", "requestword",
        message("assistant", "<summary>summaryword</summary><thinking>thoughtword</thinking>replyword", call),
        {"type": "result", "tool_use_id": "t", "content": "outputword"},
        message("user", answer, "[Begin each reply with programword]\n<working_memory>memoryword</working_memory>"),
        message("assistant", '<tool_use>{"name": "file_read", "path": "pathword"}</tool_use>'),
        message("user", "<tool_result>\noutputword\n</tool_result>\n<working_memory>memoryword</working_memory>"),
        message("assistant", {"type": "tool_use", "id": "u", "name": "broken", "input": None}),
        {"type": "cut", "history": [message("user", "cutword")["message"]]},
        {"type": "message", "message": 7},
    )  # fmt: skip
    for word in ("requestword", "replyword", "summaryword", "wombat", "code_run", "pathword", "broken"):
        assert found(word) == ["a"], word
    for word in ("outputword", "memoryword", "thoughtword", "programword", "tail", "cutword"):
        assert found(word) == [], word


def test_a_conversation_that_began_with_a_given_history_is_found_by_it() -> None:
    paths.sessions().mkdir()
    records = [
        {"type": "session", "v": 1, "id": "a"},
        {"type": "cut", "history": [message("user", "seedword")["message"]]},
    ]
    (paths.sessions() / "a.jsonl").write_bytes(b"".join(map(encode, records)))
    assert found("seedword") == ["a"]


def test_title_and_id_are_found_and_count_more_and_the_newer_comes_first() -> None:
    made("20250101-000000-aaaaaa", "filler", message("assistant", "zebra " + "and many other words " * 50), days=1)
    made("20250102-000000-bbbbbb", "the zebra", days=20)
    made("20250103-000000-cccccc", "the zebra", days=10)
    assert [id[-6:] for id in found("zebra")] == ["cccccc", "bbbbbb", "aaaaaa"]
    assert found("20250102") == found("20250102-000000-bbbbbb") == ["20250102-000000-bbbbbb"]
    assert [id[-6:] for id in found("zebra", most=1)] == ["cccccc"]
    assert [id[-6:] for id in found("zebra", since=NOW - 15 * DAY)] == ["cccccc", "aaaaaa"]
    assert [s.id[-6:] for s in search.listing(NOW - 15 * DAY)[0]] == ["aaaaaa", "cccccc"]


def test_the_text_around_the_first_hit_is_shown() -> None:
    made("a", "filler", message("assistant", "word " * 200 + "the ZEBRA-crossing 斑马 line\n\n\tends " + "word " * 200))
    for query in ("zebra", "zebra_crossing", "斑马", "马"):
        around = search.search(query, 0, NOW, width=80)[0][0].around
        assert "ZEBRA-crossing 斑马 line" in around and around[0] == around[-1] == "…" and len(around) <= 82
    made("b", "onlyintitle")
    assert search.search("onlyintitle", 0, NOW)[0][0].around == "onlyintitle"
    assert search.search('"b"', 0, NOW)[0][0].around == "", "the hit is its id"


def test_what_was_said_is_shown_before_what_was_called() -> None:
    call = {"type": "tool_use", "id": "t", "name": "code_run", "input": {"type": "bash", "script": "ls zebra wombat"}}
    made("a", "where does it live?", message("assistant", "I look.", call), message("assistant", '<tool_use>{"name": "zebra"}</tool_use>'),
         message("assistant", "The zebra lives in Africa."))  # fmt: skip
    assert search.search("zebra", 0, NOW)[0][0].around == "where does it live? I look. The zebra lives in Africa."
    assert search.search("wombat", 0, NOW)[0][0].around == 'code_run bash ls zebra wombat {"name": "zebra"}'


def test_a_key_is_masked_also_where_the_text_is_cut() -> None:
    key = "sk-abcdefghijklmnopqrstuvwxyz0123456789-ABCDEFGHIJKLMNOP"
    made("a", key, message("assistant", f"zebra {key} " + "word " * 50 + f"{key}"))
    for width in range(10, 120, 3):
        (hit,), _ = search.search("zebra", 0, NOW, redact=Redactor([key]), width=width)
        assert "abcdefg" not in hit.around and "MNOP" not in hit.around and "sk-" not in hit.session.title


def test_control_characters_and_half_characters_of_a_session_are_harmless() -> None:
    evil = "zeb\x1b]0;t\x07ra \ud800\x00 \x1f\x9b2J wombat"
    records = [{"type": "session", "v": 1, "id": evil}, {"type": "line", "text": f"[USER]: {evil}"},
               {"type": "taint", "source": evil}, message("assistant", f"x \ud800 quokka{evil}")]  # fmt: skip
    paths.sessions().mkdir()
    Path(os.fsdecode(os.fsencode(paths.sessions()) + b"/\xff\xfe.jsonl")).write_bytes(b"".join(map(encode, records)))
    (hit,), _ = search.search("quokka wombat", 0, NOW)
    assert all(text.isprintable() and "wombat" in text for text in (hit.session.id, hit.session.title, hit.around))
    assert [s.title for s in search.listing()[0]] == [hit.session.title] and hit.tainted.isprintable()


# the index follows the files


def test_only_what_changed_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = search.content
    monkeypatch.setattr(search, "content", lambda path: (read.append(path.name), real(path))[1])
    for name in "abc":
        made(name, f"zebra {name}", days=20)
    assert sorted(found("zebra")) == ["a", "b", "c"] and sorted(read) == ["a.jsonl", "b.jsonl", "c.jsonl"]
    read.clear()
    assert search.listing()[0] and len(found("zebra")) == 3 and read == []
    made("b", "wombat", days=19)
    (paths.sessions() / "c.jsonl").unlink()
    assert found("wombat") == ["b"] and found("zebra") == ["a"] and read == ["b.jsonl"]
    assert archive.tidy(NOW - 14 * DAY)[0] == 2
    read.clear()
    assert (found("wombat"), found("zebra")) == (["b"], ["a"]) and read == [], "only moved"
    assert search.search("zebra", 0, NOW)[0][0].session.path == paths.archive() / "a.jsonl.gz"
    archive.unpack(paths.archive() / "a.jsonl.gz")
    with (paths.sessions() / "a.jsonl").open("ab") as file:
        file.write(encode(message("assistant", "quokka")))
    assert found("quokka zebra") == ["a"] and {s.id for s in search.listing()[0]} == {"a", "b"}


def test_a_session_that_lies_in_both_places_is_one() -> None:
    data = made("a", "zebra", days=20).read_bytes()
    archive.tidy(NOW - 14 * DAY)
    (paths.sessions() / "a.jsonl").write_bytes(data + encode(message("assistant", "wombat")))
    assert [s.path.parent.name for s in search.listing()[0]] == ["sessions"]
    assert found("zebra") == found("wombat") == ["a"]


def test_a_list_comes_before_a_search_and_after_one() -> None:
    made("a", "zebra")
    made("b", "wombat", days=3)
    for _ in range(2):
        assert [(s.id, s.title, s.created) for s in search.listing()[0]] == [("a", "zebra", 5.0), ("b", "wombat", 5.0)]
        assert found("wombat") == ["b"]


def test_a_session_that_is_being_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    paths.sessions().mkdir()
    journal = Journal.create(paths.sessions(), "live", {"cwd": "/"}, lambda: NOW)
    journal.append({"type": "line", "text": "[USER]: the zebra"})
    assert [s.title for s in search.listing()[0]] == ["the zebra"]
    journal.append(message("assistant", "a wombat"))
    assert found("wombat") == ["live"]
    journal.append(message("assistant", "a quokka"))
    assert found("quokka wombat") == ["live"]
    journal.close()


def test_asking_an_empty_home_makes_nothing_in_it(ga_home: Path) -> None:
    assert search.listing() == ([], []) and search.search("zebra", 0, NOW) == ([], [])
    assert list(ga_home.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="POSIX modes")
def test_a_folder_that_is_made_is_for_the_user_only() -> None:
    made("a", "zebra", days=20)
    archive.tidy(NOW - 14 * DAY)
    for ask in (lambda: found("zebra"), lambda: archive.unpack(paths.archive() / "a.jsonl.gz")):
        for path in paths.sessions().iterdir():
            path.unlink()
        paths.sessions().rmdir()
        ask()
        assert paths.sessions().stat().st_mode & 0o077 == 0


def test_a_session_from_the_future_is_not_the_last() -> None:
    made("a", "zebra", days=-1000)
    made("b", "zebra", days=1000)
    assert found("zebra") == ["a", "b"]


# damage


def test_a_damaged_archive_is_named_and_the_others_are_found() -> None:
    for name in ("a", "b", "c", "d", "e", "f"):
        made(name, f"zebra {name}" + " long" * 50_000 * (name == "d"), days=20)
    archive.tidy(NOW - 14 * DAY)
    files = {name: paths.archive() / f"{name}.jsonl.gz" for name in "abcdef"}
    files["a"].write_bytes(files["a"].read_bytes()[:-3])
    files["b"].write_bytes(b"")
    files["c"].write_bytes(b"no gzip at all")
    files["d"].write_bytes(files["d"].read_bytes()[:-3])  # its beginning is well
    files["e"].write_bytes(gzip.compress(b"no session"))
    told = [f"{name}.jsonl.gz" for name in "abcde"]
    assert {s.id for s in search.listing()[0]} == {"d", "f"}
    assert found("zebra") == ["f"] and search.search("zebra", 0, NOW)[1] == told
    assert search.search("zebra", 0, NOW)[1] == told, "also when it is known"
    assert search.listing()[1] == told and [s.id for s in search.listing()[0]] == ["f"]


def _junk(file: Path) -> None:
    file.write_bytes(b"this is no database, " * 999)


def _zeros(file: Path) -> None:
    file.write_bytes(bytes(len(file.read_bytes())))


def _half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _middle(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _newer(file: Path) -> None:
    other = sqlite3.connect(file)
    other.execute("PRAGMA user_version = 99")
    other.close()


def _other_tables(file: Path) -> None:
    other = sqlite3.connect(file)
    other.execute("DROP TABLE files")
    other.commit()
    other.close()


def _folder(file: Path) -> None:
    file.unlink()
    (file / "in the way").mkdir(parents=True)


def _journal(file: Path) -> None:
    Path(f"{file}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(range(256)) * 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "harm", [Path.unlink, _junk, _zeros, _half, _middle, _empty, _newer, _other_tables, _folder, _journal]
)
def test_a_damaged_index_is_made_anew_from_the_files(harm: Callable[[Path], None]) -> None:
    for n in range(30):
        made(f"s{n:02}", f"zebra {n}", message("assistant", f"wombat{n} " + "words " * 300), days=20 + n)
    archive.tidy(NOW - 30 * DAY)
    assert found("wombat7") == ["s07"]
    harm(paths.sessions() / "index.db")
    assert len(search.listing()[0]) == 30 and found("wombat7") == ["s07"] and len(found("zebra", most=99)) == 30


def test_bytes_changed_anywhere_in_the_index_hide_nothing() -> None:
    for n in range(8):
        made(f"s{n}", f"zebra {n}", message("assistant", "words " * 200))
    assert len(found("zebra")) == 8
    file, rng = paths.sessions() / "index.db", random.Random(7)
    whole = file.read_bytes()
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 40)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(data)
        first = rng.random() < 0.5 and len(search.listing()[0])
        assert len(found("zebra")) == len(found("words")) == len(search.listing()[0]) == 8 and first in (False, 8)


def test_an_index_that_was_left_in_the_middle_is_made_anew() -> None:
    made("a", "zebra")
    assert found("zebra") == ["a"]
    file = paths.sessions() / "index.db"
    index = sqlite3.connect(file)
    index.execute("DELETE FROM texts")
    index.commit()
    index.close()
    assert found("zebra") == ["a"] and file.stat().st_mtime == search.SEAL
    read = file.read_bytes()
    assert found("zebra") == ["a"] and file.read_bytes() == read, "as it was left it is used"


@pytest.mark.skipif(os.name != "posix", reason="POSIX modes")
def test_nobody_else_can_read_the_index() -> None:
    made("a", "zebra")
    found("zebra")
    assert (paths.sessions() / "index.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("fault", ["lock", "busy", "open", "disk"])
def test_where_no_index_can_be_kept_the_sessions_are_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    made("a", "zebra")
    lock, connect = FileLock(paths.sessions() / "index.lock"), sqlite3.connect

    def refused(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def only_memory(place: Any) -> sqlite3.Connection:
        if place != ":memory:":
            raise sqlite3.OperationalError("disk I/O error")
        return connect(place)

    with monkeypatch.context() as patch:
        patch.setattr(search, "WAIT", 0.0)
        if fault == "lock":
            patch.setattr(FileLock, "acquire", refused)
        elif fault == "busy":
            assert lock.acquire()
        elif fault == "open":
            patch.setattr(os, "open", refused)
        else:
            patch.setattr(sqlite3, "connect", only_memory)
        assert found("zebra") == ["a"] and [s.id for s in search.listing()[0]] == ["a"]
        assert not (paths.sessions() / "index.db").exists()
    lock.release()
    assert found("zebra") == ["a"] and (paths.sessions() / "index.db").exists()


def test_without_sqlite_sessions_are_listed_and_a_search_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    made("a", "zebra")
    made("b", "wombat", days=9)
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    assert [s.id for s in search.listing()[0]] == ["a", "b"] and [s.id for s in search.listing(NOW - 5 * DAY)[0]] == [
        "a"
    ]
    assert search.find("b") == paths.sessions() / "b.jsonl"
    with pytest.raises(SessionError, match="cannot search sessions") as error:
        found("zebra")
    assert "\n" not in str(error.value)


SEARCH = """
import sys
from genericagent.store import search
print("ready", flush=True)
sys.stdin.readline()
for query in ("zebra", "s1", "斑马", "zebra"):
    hits, damaged = search.search(query, 0, 1.8e9, 99)
    print(len(hits), len(search.listing()[0]), len(damaged), flush=True)
"""


def test_processes_search_at_once(worker: Worker) -> None:
    for n in range(40):
        made(f"s{n}", "zebra 斑马", message("assistant", "words " * 500))
    (paths.sessions() / "index.db").write_bytes(b"damaged")
    workers = [worker(SEARCH) for _ in range(4)]
    for process in workers:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in workers:
        out, _ = process.communicate(timeout=50)
        assert out.splitlines() == ["40 40 0", "11 40 0", "40 40 0", "40 40 0"]


@pytest.mark.slow
def test_killed_in_the_middle_the_index_is_whole_or_made_anew(worker: Worker) -> None:
    for n in range(300):
        made(f"s{n}", "zebra 斑马", message("assistant", "words " * 500))
    for delay in (0.01, 0.05, 0.1, 0.2):
        process = worker(SEARCH)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        time.sleep(delay)
        process.kill()
        process.wait()
        assert len(found("zebra", most=999)) == 300
        (paths.sessions() / "index.db").unlink()


# the command line


@pytest.mark.slow
def test_sessions_lists_and_searches(run_ga: Callable[..., Any]) -> None:
    key = "sk-ant-0123456789abcdef"
    made("old", f"the zebra {key}", message("assistant", f"a 斑马 {key}\x1b[2J"), days=20)
    os.utime(paths.sessions() / "old.jsonl", (1e9, 1e9))
    made("new", "hello\x1b]0;x\x07")
    os.utime(paths.sessions() / "new.jsonl")
    run_ga("sessions", "--archive")
    (paths.archive() / "broken\n.jsonl.gz").write_bytes(b"x")
    env = {"ANTHROPIC_API_KEY": key}
    done = run_ga("sessions", env=env)
    assert done.returncode == 0 and done.stderr == "warning: broken .jsonl.gz is damaged and is left out\n"
    first, second = done.stdout.splitlines()
    assert first.split()[:3] == ["new", "just", "now"] and "d ago  the zebra [a key]" in second
    assert run_ga("sessions", "--days", "3", env=env).stdout.count("\n") == 1
    lines = run_ga("sessions", "斑", "zeb", env=env).stdout.splitlines()
    assert lines[0].startswith("old ") and "a 斑马 [a key]" in lines[1] and len(lines) == 2
    assert all(line.isprintable() for line in [first, second, *lines])
    done = run_ga("sessions", "nothing", "like", "it", env=env)
    assert done.stdout == "" and "no conversation has these words" in done.stderr and done.returncode == 0
    for wrong in (["--days", "0"], ["--days", "x"], ["--what"], ["--days", "nan"]):
        assert run_ga("sessions", *wrong).returncode == 2
    assert "compress those untouched" in run_ga("sessions", "--help").stdout
