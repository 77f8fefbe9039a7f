"""Two tasks in a row in a fresh home: what the first has learned, the second one is pointed to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from genericagent.scripted import Reply, Tool, call, say


@pytest.mark.slow
def test_the_second_task_is_pointed_to_what_the_first_has_shown(
    model_server: Any, run_ga: Any, ga_home: Path, tmp_path: Path
) -> None:  # C127 C157
    (tmp_path / "servers.txt").write_text("the staging server answers on port 8443\n")
    server = model_server([
        Reply(text="<summary>try memory first</summary>", tools=[Tool("file_patch", {
            "path": f"{ga_home}/memory/global_mem.txt", "old_content": "## [ENVIRONMENT]\n", "new_content": "## [ENVIRONMENT]\n- guess: port 1234\n",
        })]),
        call("code_run", type="bash", script="cat servers.txt"),
        Reply(tools=[
            Tool("file_patch", {"path": f"{ga_home}/memory/global_mem.txt", "old_content": "## [ENVIRONMENT]\n",
                                "new_content": "## [ENVIRONMENT]\n## [STAGING]\n- staging server: port 8443\n"}),
            Tool("file_patch", {"path": f"{ga_home}/memory/global_mem_insight.txt", "old_content": "# Red lines\n",
                                "new_content": "staging server: global_mem.txt [STAGING]\n# Red lines\n"}),
        ]),
        say("It answers on 8443."), say("8443, as noted."),
    ])  # fmt: skip
    env = {"ANTHROPIC_API_KEY": "key-for-test", "ANTHROPIC_BASE_URL": server.url}
    first = run_ga("--task", "one", "--input", "find the port of the staging server", "--cwd", str(tmp_path), env=env)
    assert first.returncode == 0, first.stderr
    assert "no execution, no memory" in json.dumps(server.requests[1].body["messages"])

    lines = [json.loads(line) for line in (ga_home / "memory" / ".journal.jsonl").read_text().splitlines()]
    assert [line["file"] for line in lines] == ["global_mem.txt", "global_mem_insight.txt"]
    end = json.loads((ga_home / "temp" / "one" / "result.json").read_text())
    for line in lines:
        assert (
            line["session"] == end["session"] and line["turn"] == 3 and line["by"] == "tool" and line["tainted"] is None
        )
        calls = [ground for ground in line["evidence"] if ground.get("tool") == "code_run"]
        assert calls and calls[0]["what"] == "cat servers.txt"
    assert "staging server: global_mem.txt" not in json.dumps(server.requests[0].body["system"])

    second = run_ga("--task", "two", "--input", "which port was it?", env=env)
    assert second.returncode == 0, second.stderr
    assert "staging server: global_mem.txt [STAGING]" in json.dumps(server.requests[-1].body["system"])
    assert "- staging server: port 8443" in (ga_home / "memory" / "global_mem.txt").read_text()
    listed = run_ga("memory", "log")
    assert listed.returncode == 0 and len(listed.stdout.splitlines()) == 2
    assert run_ga("memory", "check").returncode == 0


@pytest.mark.slow
def test_a_change_by_hand_between_two_tasks_is_shown(model_server: Any, run_ga: Any, ga_home: Path) -> None:
    server = model_server([say("a"), say("b"), say("c")])
    env = {"ANTHROPIC_API_KEY": "key-for-test", "ANTHROPIC_BASE_URL": server.url}
    assert run_ga("-p", "one", env=env).returncode == 0
    with (ga_home / "memory" / "global_mem.txt").open("a") as file:
        file.write("- by hand\n")
    told = run_ga("-p", "two", env=env).stderr
    assert "global_mem.txt was changed by hand" in told
    assert "by hand" not in run_ga("-p", "three", env=env).stderr
