"""What one process of a script may use, and how that is set: by a shell in front of it, before anything of it runs.

Not between fork and exec by Python, which is not safe in a program with threads.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

_BLOCK = 512  # bytes; the unit of ulimit -f (POSIX)
_LEAST_MEMORY = 4096  # MB; threads and just-in-time compilers reserve more than they use
_MORE = 10  # seconds of CPU time from the signal that can be handled to the one that can't
# In the sandbox's own process table: tells that it is up, runs the script, and looks whether something is left of it.
_INSIDE = (
    'trap : TERM; echo up >&2; (exec "$@" 2>&1); s=$?; k=alone; for p in /proc/[0-9]*; do case $p in '
    '/proc/1|/proc/$$) ;; *) c=Z; { read -r c <"$p/stat"; } 2>/dev/null; case ${c##*) } in [ZX]*) ;; *) k=left;; esac;; esac; done; '
    "echo $k >&2; exit $s"
)


def _memory() -> int:
    try:
        return max(_LEAST_MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20)
    except (AttributeError, ValueError, OSError):  # not known on this system
        return _LEAST_MEMORY


@dataclass(frozen=True)
class Limits:
    """For each process, not their sum; None or 0 is no limit. Memory is what it can write for itself (RLIMIT_DATA in
    setrlimit(2)), by default the machine's; files in MB; CPU seconds by default an hour on every core."""

    memory_mb: int | None = field(default_factory=_memory)
    file_mb: int | None = 10_240
    cpu_seconds: int | None = field(default_factory=lambda: 3600 * (os.cpu_count() or 1))

    def notes(self, code: int | None, text: str) -> Iterator[str]:
        """Which limit a script that failed seems to have met."""
        if not code:
            return

        def died(name: str) -> bool:
            number = getattr(signal, name, 0)
            return bool(number) and code in (-number, 128 + number)

        if self.cpu_seconds and (died("SIGXCPU") or "CPU time limit exceeded" in text):
            yield f"it used up its CPU time (limit: {self.cpu_seconds} s for a process)"
        if self.file_mb and (died("SIGXFSZ") or re.search("File too large|File size limit exceeded", text)):
            yield f"a file grew too large (limit: {self.file_mb} MB)"
        if self.memory_mb and re.search("MemoryError|Cannot allocate memory|bad_alloc|[Oo]ut of memory", text):
            yield f"it ran out of memory (limit: {self.memory_mb} MB for a process)"


def size_mark() -> int:
    """Bytes, far more than any file has, that no other call uses; 0 where children cannot be known by it."""
    if sys.platform != "linux":
        return 0
    most = _most("RLIMIT_FSIZE") or 1 << 62
    return most - most % _BLOCK - _BLOCK * (1 + int.from_bytes(os.urandom(5))) if most >= 1 << 54 else 0


def limited(command: list[str], limits: Limits, size: int, inside: bool) -> list[str]:
    """The command with the limits in front of it, and around it what tells from inside of a sandbox how it went."""
    if os.name == "nt":
        return command
    steps = ["ulimit -c 0"]
    if limits.memory_mb:
        steps.append(f"ulimit -d {_least(limits.memory_mb << 20, 'RLIMIT_DATA') >> 10}")
    if limits.cpu_seconds:
        seconds = _least(limits.cpu_seconds, "RLIMIT_CPU")
        steps += [f"ulimit -St {seconds}", f"ulimit -Ht {_least(seconds + _MORE, 'RLIMIT_CPU')}"]
    if size or limits.file_mb:
        most = _least((limits.file_mb or 0) << 20 or size, "RLIMIT_FSIZE")
        steps += [f"ulimit -Sf {most // _BLOCK}", f"ulimit -Hf {max(size, most) // _BLOCK}"]
    then = _INSIDE if inside else 'exec "$@"'
    return ["/bin/sh", "-c", f"{{ {'; '.join(steps)}; }} 2>/dev/null; {then}", "sh", *command]


def _least(wanted: int, name: str) -> int:
    """Not more than what holds for us: root could raise it."""
    return min(wanted, _most(name) or wanted)


def _most(name: str) -> int | None:
    import resource

    hard = resource.getrlimit(getattr(resource, name))[1]
    return None if hard == resource.RLIM_INFINITY else hard
