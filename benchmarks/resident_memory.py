"""How much memory a process has, as the kernel counts it: this one unless another is named."""

from __future__ import annotations


def resident_bytes(pid: int | None = None) -> int:
    """All of it, with what is mapped from files."""
    return _status("VmRSS:", pid)


def own_bytes(pid: int | None = None) -> int:
    """What is backed by no file, so that nobody could take it back."""
    return _status("RssAnon:", pid)


def _status(field: str, pid: int | None) -> int:
    with open(f"/proc/{'self' if pid is None else pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    raise AssertionError(f"the kernel tells no {field}")
