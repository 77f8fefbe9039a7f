"""What is installed is bounded and known by its hash, and nothing tells anybody to fetch things in the clear."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BASE = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
EXTRAS = {name: [Requirement(t) for t in texts] for name, texts in PROJECT["project"]["optional-dependencies"].items()}
BUILD = [Requirement(text) for text in PROJECT["build-system"]["requires"]]
LOCKS = {
    "requirements.lock": BASE,
    "requirements-dev.lock": [*BASE, *(requirement for extra in EXTRAS.values() for requirement in extra)],
}
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def pins(text: str) -> dict[str, tuple[Requirement, list[str]]]:
    """canonical name → (the pinned requirement, its hashes). Raises on any other kind of line."""
    found: dict[str, tuple[Requirement, list[str]]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if line and not line.startswith("#"):
            spec, *hashes = re.split(r"\s+(?=--)", line.strip())
            requirement = Requirement(spec)
            again = found.get(canonicalize_name(requirement.name))
            assert not requirement.url and (again is None or (again[0].marker and requirement.marker)), spec
            assert hashes and all(HASH.fullmatch(h) for h in hashes), f"{spec} has no hash"
            found[canonicalize_name(requirement.name)] = (requirement, hashes)
    return found


def version(pin: Requirement) -> Version:
    (specifier,) = pin.specifier
    assert specifier.operator == "==" and "*" not in specifier.version, f"{pin} is no pin"
    return Version(specifier.version)


@pytest.mark.parametrize("requirement", [*BUILD, *LOCKS["requirements-dev.lock"]], ids=str)
def test_a_dependency_is_bounded_from_below_and_above(requirement: Requirement) -> None:
    operators = {specifier.operator for specifier in requirement.specifier}
    assert operators & {">=", "==", "~="} and operators & {"<", "<=", "==", "~="}, requirement
    assert not requirement.url


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_what_the_project_needs_with_hashes(name: str) -> None:
    locked = pins((ROOT / name).read_text(encoding="utf-8"))
    for requirement in LOCKS[name]:
        pin, _ = locked[canonicalize_name(requirement.name)]
        assert version(pin) in requirement.specifier, f"{pin} is not {requirement}: make lock"
    assert all(version(pin) for pin, _ in locked.values())


def test_the_locks_agree_with_each_other() -> None:
    base, every = (pins((ROOT / name).read_text(encoding="utf-8")) for name in LOCKS)
    assert {name: every[name] for name in base} == base


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_no_dependency_whose_own_ones_are_missing(name: str) -> None:
    """As the packages that are installed here say it; those of other systems are not here to be asked."""
    from importlib.metadata import PackageNotFoundError, requires

    locked = pins((ROOT / name).read_text(encoding="utf-8"))
    asked = 0
    for package in locked:
        try:
            needs = [Requirement(text) for text in requires(package) or []]
        except PackageNotFoundError:
            continue
        asked += 1
        for need in needs:
            if not need.marker or need.marker.evaluate({"extra": ""}):
                assert canonicalize_name(need.name) in locked, f"{package} needs {need}: make lock"
    assert asked > 5


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_index_and_no_path(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    options = set(re.findall(r"(?:^|\s)(-{1,2}[a-z][a-z-]*)", text))
    assert options == {"--hash"} and "://" not in text and " @ " not in text
    assert not re.search(r"(?:^|\s)[./~][\w./-]*/", text)


# addresses and instructions in the repository

LEFT_OUT = {".git", "__pycache__", ".venv", "dist", "build"}
INSECURE = re.compile(r"""http://(?=[\w\[])[^\s"'`<>()\\{}]*""", re.I)
LOOPBACK = re.compile(r"localhost|127\.[\d.]+|::1")
# RFC 2606 and 6761: nobody can own these; RFC 5737: addresses for documentation. A name without a dot is no name of the net.
RESERVED = re.compile(r"(?:.*\.)?(?:test|example|invalid|localhost|local|example\.(?:com|net|org))|192\.0\.2\.\d+")
NAMESPACES = ("http://www.w3.org/",)  # names that are never fetched


def files() -> Iterator[tuple[Path, str]]:
    """Every text file of the repository with its path in it."""
    for file in sorted(ROOT.rglob("*")):
        path = file.relative_to(ROOT)
        hidden = any(part in LEFT_OUT or part.endswith("_cache") or part == ".hypothesis" for part in path.parts)
        if not hidden and file.is_file() and not file.is_symlink():
            try:
                yield path, file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # an image


def insecure(text: str) -> list[str]:
    """The http:// addresses that somebody could answer with what he likes."""
    found = []
    for url in INSECURE.findall(text):
        try:
            host = (urlsplit(url).hostname or "").lower()
        except ValueError:  # a bracket that is not closed: nobody fetches that
            continue
        fine = LOOPBACK.fullmatch(host) or RESERVED.fullmatch(host) or "." not in host or url.startswith(NAMESPACES)
        if not fine:
            found.append(url)
    return found


def test_no_address_in_the_repository_is_fetched_in_the_clear() -> None:
    found = {str(path): urls for path, text in files() if path.parts[0] != "tests" and (urls := insecure(text))}
    assert found == {}


def test_the_search_for_such_addresses_finds_them() -> None:
    bad = [
        "http" + f"://{host}/x.zip" for host in ("files.somewhere.org", "EVIL.com:80", "127.0.0.1.evil.org", "10.0.0.1")
    ]
    good = ["http://127.0.0.1:80/", "http://localhost", "http://[::1]:9/", "http://a.test/x", "http://example.com",
            "http://www.w3.org/2000/svg", "https://files.somewhere.org", "http://{host}:{port}"]  # fmt: skip
    assert [url for url in bad if not insecure(f"see {url} there")] == []
    assert [url for url in good if insecure(f"see {url} there")] == []


INDEX = re.compile(
    r"--(?:extra-)?index-url|--find-links|--trusted-host|PIP_INDEX|UV_INDEX|\[\[tool\.uv\.index|registry\s*=\s*http"
)
# curl … | sh, sh <(curl …), sh -c "$(curl …)", eval `wget …`, iwr … | iex
FETCH = r"\b(?:curl|wget|fetch|iwr|irm|Invoke-WebRequest|Invoke-RestMethod)\b"
RUN = r"(?:sudo\s+)?(?:(?:ba|z|da)?sh|python[\d.]*|node|perl|ruby|iex|Invoke-Expression)\b"
DOWNLOAD_AND_RUN = re.compile(rf"{FETCH}[^\n|]*\|[^\n]*?{RUN}|(?:{RUN}|eval|source)[^\n]*[$<(`]+\s*{FETCH}", re.I)
DOCS = (".md", ".txt", ".rst", ".sh", ".yaml", ".yml", ".toml", "Makefile", "run")


def test_no_index_is_named_and_no_instruction_runs_what_it_downloads() -> None:
    wrong = []
    for path, text in files():
        if path.name.endswith(DOCS) and path.parts[0] != "tests":
            wrong += [f"{path}: {found[0]}" for found in DOWNLOAD_AND_RUN.finditer(text)]
            text = text.replace("--no-emit-index-url", "")
            wrong += [f"{path}: {found[0]}" for found in INDEX.finditer(text)]
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    [
        "curl -sSf https://get.example.org | sh", "wget -qO- https://a.example | sudo bash -s -- -y", "bash <(curl -s x)",
        'sh -c "$(curl -fsSL https://a.example/install.sh)"', "eval `wget -qO- x`", "irm https://a.example/i.ps1 | iex",
        "curl x | tee y | python3 -", "source <(curl x)",
    ],
)  # fmt: skip
def test_the_search_for_such_instructions_finds_them(line: str) -> None:
    assert DOWNLOAD_AND_RUN.search(f"Install it:\n\n    {line}\n")


def test_words_about_fetching_are_no_such_instruction() -> None:
    assert not DOWNLOAD_AND_RUN.search("Use `curl` to try it.\n| curl | asks |\nThen run sh install.sh | tee log")
