"""Which system calls nobody in the sandbox needs: a seccomp filter as bwrap(1) --seccomp reads it.

They reach past the namespaces (the kernel's keys, virtual sockets to the host of a virtual machine) or are large and
seldom needed by a script (bpf, perf, io_uring, userfaultfd). Numbers: the kernel's syscall tables; see seccomp(2).
"""

from __future__ import annotations

import os
import struct
import sys

# machine → (AUDIT_ARCH of linux/audit.h, socket, then what is refused)
_IO_URING = (425, 426, 427)
_MACHINES = {
    "x86_64": (0xC000003E, 41, (248, 249, 250, 298, 321, 323, *_IO_URING)),  # add_key … userfaultfd
    "aarch64": (0xC00000B7, 198, (217, 218, 219, 241, 280, 282, *_IO_URING)),
}
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # linux/bpf_common.h
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_ENOSYS, _EAFNOSUPPORT, _AF_VSOCK, _X32 = 38, 97, 40, 0x40000000
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data


def program(machine: str) -> bytes:
    """struct sock_filter[] for that machine (`os.uname().machine`); empty where the numbers are not known."""
    if machine not in _MACHINES or sys.byteorder != "little":
        return b""
    arch, socket, refused = _MACHINES[machine]
    steps = [(_LOAD, _ARCH, 0, 0), (_JUMP_EQUAL, arch, 1, 0), (_RETURN, _ERRNO | _ENOSYS, 0, 0), (_LOAD, _NUMBER, 0, 0)]
    for jump, number in [(_JUMP_AT_LEAST, _X32), *((_JUMP_EQUAL, n) for n in refused)]:
        steps += [(jump, number, 0, 1), (_RETURN, _ERRNO | _ENOSYS, 0, 0)]
    steps += [(_JUMP_EQUAL, socket, 0, 3), (_LOAD, _FIRST_ARGUMENT, 0, 0), (_JUMP_EQUAL, _AF_VSOCK, 0, 1)]
    steps += [(_RETURN, _ERRNO | _EAFNOSUPPORT, 0, 0), (_RETURN, _ALLOW, 0, 0)]
    return b"".join(struct.pack("<HBBI", code, true, false, k) for code, k, true, false in steps)


def filter_fd() -> int:
    """A descriptor to read the filter for this machine from, once; -1 where there is none."""
    data = program(os.uname().machine)
    return readable(data) if data else -1


def readable(data: bytes) -> int:
    """A descriptor to read that from, once: memfd_create(2), which holds more than a pipe."""
    fd = os.memfd_create("bwrap")
    with os.fdopen(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
