"""Slash commands: what is one, what it does, what it says."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from fake_agent import FakeAgent
from prompt_toolkit.utils import get_cwidth

from ga import load_tool_schema
from genericagent import prompts
from genericagent.cli import commands
from genericagent.cli.chat import Chat
from genericagent.cli.commands import COMMANDS, parse
from genericagent.cli.composer import Composer
from genericagent.cli.render import View
from genericagent.errors import SessionError


class Said(list[str]):
    """A chat that only remembers what it said."""

    def __init__(self, agent: Any = None) -> None:
        self.agent: Any = agent or FakeAgent()
        self.texts = dict(prompts.catalog("chat"))
        self.view = View(self.texts)
        self.running = self.closed = False
        self.listed: list[str] = []
        self.menu: Any = None
        self.face = self
        self.input = ""
        self.sent: list[str] = []
        self._lock, self._unheard = threading.RLock(), list[str]()
        self.composer = Composer(self.texts, Path)

    steered = Chat.steered

    def choose(self, title: str, menu: Any) -> None:
        self.extend([title, *menu.rows])
        self.menu = menu

    def pick(self, row: str) -> str:
        """Choose the row that begins so."""
        menu, self.menu = self.menu, None
        self.clear()
        menu.then(next(n for n, text in enumerate(menu.rows) if text.startswith(row)))
        return "\n".join(self)

    def give_back(self, text: str) -> bool:
        self.input = text + self.input
        return True

    def submit(self, text: str) -> None:
        self.sent.append(text)

    def say(self, key: str, **values: object) -> None:
        self.append(self.texts[key].format(**values))

    error = say

    def width(self) -> int:
        return 80

    def stop(self) -> bool:
        return self.running

    def close(self) -> None:
        self.closed = True

    def replay(self) -> None:
        pass

    def forget(self) -> None:
        self.append("(forgot)")

    def run(self, text: str) -> str:
        self.clear()
        assert commands.run(self, text)  # type: ignore[arg-type]
        return "\n".join(self)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/help", ("help", "")),
        ("  /LLM 2 ", ("llm", "2")),
        ("/llm\n2", ("llm", "2")),
        ("/nonsense", ("nonsense", "")),
        ("/nonsense with words", ("nonsense", "with words")),
        ("/etc/hosts what is this?", None),
        ("/etc what is in there?", None),
        ("/srv_x copy /etc/hosts there", None),
        ("/session.temperature=1", None),
        ("/2 + 2", None),
        ("/", None),
        ("// a comment", None),
        ("help", None),
        ("say /help", None),
    ],
)
def test_a_path_is_taken_for_a_command(text: str, expected: tuple[str, str] | None) -> None:
    assert parse(text, exists=lambda path: path == "/etc") == expected


def test_an_unknown_command_goes_to_the_model() -> None:
    chat = Said()
    assert "did you mean /help" in chat.run("/hlep")
    assert chat.run("/re") == "there is no /re: did you mean /resume, /rename, /rewind?"
    assert chat.run("/zzzzzz") == "there is no /zzzzzz: see /help"
    assert not commands.run(chat, "hello")  # type: ignore[arg-type]


def test_help_names_every_command_in_both_languages() -> None:
    for language in ("en", "zh"):
        prompts.set_language(language)
        try:
            shown = Said().run("/help")
        finally:
            prompts.set_language(None)
        assert all(f"/{word}" in shown for word in COMMANDS)


def test_a_new_command_is_one_function_with_a_docstring() -> None:
    @commands.command("gr", usage="NAME")
    def greet(chat: Any, args: str) -> None:
        """say hello"""
        chat.say("plain", text=f"hello {args}")

    try:
        chat = Said()
        assert chat.run("/gr you") == "hello you"
        assert "/greet NAME            say hello (/gr)\n" in chat.run("/help")
    finally:
        del COMMANDS["greet"], COMMANDS["gr"]


def test_docstrings_and_catalogue_drift_apart() -> None:
    english, chinese = prompts._catalog("en", "chat"), prompts._catalog("zh", "chat")
    for entry in set(COMMANDS.values()):
        assert english[f"help_{entry.name}"] == entry.function.__doc__
        assert re.search("[\u4e00-\u9fff]", chinese[f"help_{entry.name}"]), f"/{entry.name} has no Chinese line"
        assert entry.group in commands.GROUPS


@pytest.mark.parametrize("language", ["en", "zh"])
def test_help_is_wider_than_the_terminal(language: str) -> None:  # C100 C107
    prompts.set_language(language)
    try:
        shown = Said().run("/help").split("\n")
    finally:
        prompts.set_language(None)
    assert max(map(get_cwidth, shown)) < 80
    assert [line for line in shown if line in ("Conversation", "对话")] and len(shown) < 60


def test_a_tool_has_no_line_in_tools() -> None:
    texts = prompts.catalog("chat")
    assert all(f"tool_{tool['function']['name']}" in texts for tool in load_tool_schema())


def test_llm_lists_and_switches() -> None:
    chat = Said()
    assert chat.run("/llm") == "Which model?\nclaude\ngpt" and chat.menu.marked == 0
    assert chat.pick("gpt") == "Model: 1" and chat.agent.model == 1
    chat.run("/llm")
    assert chat.menu.marked == 1
    assert chat.run("/llm cla") == "Model: 0" and chat.agent.model == 0
    assert chat.run("/llm 7") == "there is no model 7: choose 0 to 1, or a part of a name"


def test_a_number_is_never_a_part_of_a_models_name() -> None:
    chat = Said()
    chat.agent.list_llms = lambda: [(0, "claude-4", True), (1, "gpt-5", False)]
    assert chat.run("/llm 4") == "there is no model 4: choose 0 to 1, or a part of a name"
    assert chat.run("/llm t-5") == "Model: 1"


def test_resume_lets_choose_and_opens() -> None:
    chat = Said()
    assert chat.run("/resume") == "Which conversation?\nnewest · just now\nolder · 2 h ago"  # C104
    assert chat.pick("older") == "(forgot)\nGoing on with s-old: older"
    assert chat.agent.session_id == "s-old"
    chat.run("/resume s-new")
    assert chat.agent.session_id == "s-new"
    assert chat.run("/resume 1") == "that is this conversation"
    chat.run("/continue")
    assert chat.agent.session_id == "s-old"


def test_a_number_that_no_conversation_has_is_searched_for() -> None:
    chat = Said()
    for text in ("/resume 99", "/continue 0", "/resume 7"):
        assert chat.run(text).startswith("there is no conversation ") and "1 to 2 are listed" in chat[0]
        assert len(chat) == 1 and not chat.agent.session_id
    chat.run("/sessions zebra")
    assert "1 to 1 are listed" in chat.run("/resume 2")
    assert chat.run("/resume 2025") == "no conversation has these words"  # it may be the beginning of an id
    chat.agent.list_sessions = lambda everything=False: []
    assert Said(chat.agent).run("/resume 1") == Said(chat.agent).run("/resume") == "no earlier conversations"


def test_runs_of_watchers_crowd_out_the_users_conversations() -> None:
    chat = Said()
    for text in ("/sessions", "/resume"):
        assert "watcher" not in chat.run(text) and "[watcher] looked" in chat.run(f"{text} all")
    chat.run("/continue all")
    assert chat.pick("[watcher] looked").endswith("Going on with s-watch: older")


def test_sessions_are_searched_and_one_of_those_shown_goes_on() -> None:
    chat = Said()
    assert chat.run("/sessions") == "  1    just now  s-new  newest\n  2     2 h ago  s-old  older"  # C104
    first, around = chat.run("/sessions zebra").splitlines()
    assert first == "  1     2 h ago  s-old  older" and "zebra" in around and around.isprintable()
    assert "(forgot)" not in chat
    assert chat.run("/resume 1").endswith("Going on with s-old: older") and chat.agent.session_id == "s-old"
    chat.run("/sessions")
    assert chat.run("/resume 1").endswith("Going on with s-new: older")
    for word in ("resume", "continue"):  # the only one that has the words
        assert chat.run(f"/{word} the zebra").startswith("  1     2 h ago  s-old")
        assert chat[-1] == "Going on with s-old: older" and chat.agent.session_id == "s-old"
        chat.run("/resume s-new")
    assert chat.run("/sessions wombat") == "no conversation has these words"
    assert chat.run("/sessions broken zebra").startswith("broken.jsonl.gz is damaged and is left out\n  1 ")


def test_an_expected_error_is_one_line() -> None:
    chat = Said()

    def refuse(wanted: str) -> str:
        raise SessionError(f"{wanted} is in use\nby process 7\x1b[2J")

    chat.agent.resume = refuse
    assert chat.run("/resume x") == "x is in use by process 7"


def test_the_rest() -> None:
    chat = Said()
    assert chat.run("/cost") == "3 requests\n$0.01"
    assert chat.run("/stop") == "nothing is running"
    assert chat.run("/new") == "(forgot)\nA new conversation begins."
    assert "everything" in chat.run("/verbose") and chat.view.verbose
    chat.run("/verbose")
    assert not chat.view.verbose
    assert chat.run("/q") == "" and chat.closed


def test_a_command_that_changes_the_conversation_runs_beside_a_task() -> None:
    chat = Said()
    chat.running = True
    for text in (
        "/new",
        "/llm 1",
        "/resume 1",
        "/continue",
        "/rewind",
        "/compact",
        "/language zh",
        "/sandbox off",
        "/workspace /",
    ):
        assert chat.run(text).endswith("has to wait: a task is running (/stop ends it)")
    assert chat.run("/cost") == "3 requests\n$0.01"


@pytest.mark.parametrize(("typed", "meant"), [("sesions", "sessions"), ("docter", "doctor"), ("memroy", "memory")])
def test_a_mistyped_subcommand_is_taken_for_a_folder(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from genericagent.cli.args import _meant, run_command

    monkeypatch.chdir(tmp_path)
    assert run_command([typed, "words"]) == 2
    assert "did you mean" in (told := capsys.readouterr().err) and f" {meant}`?" in told
    (tmp_path / typed).mkdir()
    assert _meant(typed) == "" and _meant("src") == "" and _meant("--web") == ""
