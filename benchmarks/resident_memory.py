"""How much memory this process has, as the kernel counts it."""

from __future__ import annotations


def resident_bytes() -> int:
    """All of it, with what is mapped from files."""
    return _status("VmRSS:")


def own_bytes() -> int:
    """What is backed by no file, so that nobody could take it back."""
    return _status("RssAnon:")


def _status(field: str) -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    raise AssertionError(f"the kernel tells no {field}")
