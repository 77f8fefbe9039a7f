"""The wheel: what it puts where, and that it works from there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genericagent.scripted import say

ROOT = Path(__file__).parents[1]
BESIDE = Path(sys.base_prefix).parent  # where a manager of versions has others


def newer(version: str) -> str | None:
    there = [str(path) for path in BESIDE.glob(f"{version}.*/bin/python{version}")]
    return next(filter(None, [*there, shutil.which(f"python{version}")]), None)


PYTHONS = [sys.executable, *filter(None, map(newer, ("3.12", "3.13", "3.14", "3.15")))]
DOORS = {"agent_loop.py", "ga.py", "llmcore.py", "agentmain.py", "simphtml.py", "TMWebDriver.py"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    yield made


def test_only_the_doors_and_the_package_are_at_the_top(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {n.split("/")[0] for n in names if ".dist-info/" not in n}
    assert top == DOORS | {"genericagent"}
    shipped = {n for n in names if n.startswith("genericagent/_shipped/")}
    for folder in ("assets", "frontends", "memory", "plugins", "reflect"):
        ours = {
            f"genericagent/_shipped/{p.relative_to(ROOT).as_posix()}" for p in (ROOT / folder).rglob("*") if p.is_file()
        }
        assert {n for n in ours if "__pycache__" not in n} <= shipped
    assert not [n for n in names if "__pycache__" in n or "mykey" in n or n.startswith("tests")]
    assert "genericagent/py.typed" in names


@pytest.mark.slow
def test_the_installed_command_works_and_writes_only_into_the_home(
    wheel: Path, tmp_path: Path, model_server: Any, ga_home: Path
) -> None:
    site = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run(command, check=True, capture_output=True)
    before = {p: p.stat().st_mtime_ns for p in site.rglob("*") if "__pycache__" not in p.parts}
    server = model_server([say("fine")])
    env = {**os.environ, "PYTHONPATH": str(site), "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    for args in (["--version"], ["-p", "hi"]):
        done = subprocess.run(
            [str(site / "bin" / "ga"), *args],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout == "fine\n" and (ga_home / "memory" / "global_mem.txt").exists()
    assert {p: p.stat().st_mtime_ns for p in site.rglob("*") if "__pycache__" not in p.parts} == before


def test_the_source_archive_has_all_that_is_needed_and_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build"]
    subprocess.run([*build, "-t", "sdist", "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
    left_out = {name for name in filter(None, tracked) if not (source / name).exists()}
    assert {name for name in left_out if not name.startswith(".")} == set()
    subprocess.run([*build, "-t", "wheel", "-d", str(tmp_path)], cwd=source, check=True, capture_output=True)
    (again,) = tmp_path.glob("*.whl")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


@pytest.mark.slow
@pytest.mark.parametrize("python_with", PYTHONS)
def test_taking_it_away_leaves_the_home_alone(
    wheel: Path, tmp_path: Path, model_server: Any, ga_home: Path, python_with: str
) -> None:
    """In an environment of its own that sees the libraries of this one; started from an empty folder."""
    venv, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    subprocess.run([python_with, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    python = str(venv / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", "--ignore-installed", str(wheel)], check=True)
    server = model_server([say("fine")])
    env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    done = subprocess.run(
        [str(venv / "bin" / "ga"), "-p", "hi"],
        env=env,
        cwd=empty,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stdout, list(empty.iterdir())) == (0, "fine\n", []), done.stderr
    kept = {path: path.read_bytes() for path in ga_home.rglob("*") if path.is_file()}
    subprocess.run([*pip, "uninstall", "-q", "-y", "genericagent"], check=True)
    assert not [path for path in site.rglob("*") if "genericagent" in path.name or path.name == "ga.py"]
    assert kept and {path: path.read_bytes() for path in ga_home.rglob("*") if path.is_file()} == kept


def test_make_empties_a_folder_that_is_not_its_own(tmp_path: Path) -> None:
    kept = tmp_path / "my-work" / "thesis.txt"
    kept.parent.mkdir()
    kept.write_text("years")
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    for goal in ("chat", "clean"):
        done = subprocess.run(
            ["make", "-C", str(tmp_path), goal, f"VENV={kept.parent}"], capture_output=True, text=True, check=False
        )
        assert kept.read_text() == "years" and (goal == "clean" or "not empty" in done.stdout), done
