"""The facts about a machine without which a figure means nothing."""

from __future__ import annotations

import os
import platform

from benchmarks.warm_memory import available_bytes


def environment(directory: str) -> dict[str, str | int | float]:
    """What the benchmarks run on; `directory` is where they write."""
    return {
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "filesystem": _filesystem_type(os.path.realpath(directory)),
        "available_memory_mb": available_bytes() // 10**6,
        "load_average": round(os.getloadavg()[0], 2),
    }


def _filesystem_type(path: str) -> str:
    """That of the mount point which the path lies under most closely."""
    closest, kind = "", "unknown"
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            _, mount_point, mounted_kind, *_ = line.split()
            if len(mount_point) >= len(closest) and _is_under(path, mount_point):
                closest, kind = mount_point, mounted_kind
    return kind


def _is_under(path: str, mount_point: str) -> bool:
    return os.path.commonpath([path, mount_point]) == mount_point
