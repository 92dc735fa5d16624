"""Compiles the one optional native module while a wheel or an editable install is made.

Needs Cython, a C compiler and Python's headers. Where one of them is missing or fails, the wheel
is made without, the reason is told, and the module's Python twin serves.
Invariant: beside the source lies a module made of this source, or none.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "millstream.records._arrow"
SOURCE = "src/millstream/records/_arrow.pyx"
COMPILE_TIMEOUT_S = 300
# As Python itself is compiled, but for what it was told of its own installation.
FLAGS = ("-O3", "-fwrapv", "-fPIC", "-shared", "-DNDEBUG", "-g0")


class NotCompiled(Exception):
    """Why there is no native module."""


class NativeModule(BuildHookInterface[Any]):
    """What hatchling runs before it gathers the files of a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Put the module beside its source, where an editable install finds it too."""
        source = Path(self.root, SOURCE)
        module = source.with_name(source.stem + sysconfig.get_config_var("EXT_SUFFIX"))
        try:
            compile_module(source, module)
        except NotCompiled as cause:
            module.unlink(missing_ok=True)
            self.app.display_warning(f"without the native module, Python does its work: {cause}")
            return
        self.app.display_info(f"compiled {module.name}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(module.relative_to(self.root).as_posix())


def compile_module(source: Path, module: Path) -> None:
    """Make `module` of `source`, whole or not at all. Raises NotCompiled."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    headers = sysconfig.get_path("include")
    with tempfile.TemporaryDirectory(prefix=".native-", dir=module.parent) as scratch:
        generated, linked = f"{scratch}/module.c", f"{scratch}/module.so"
        cython = [sys.executable, "-m", "cython", "-3", "--module-name", MODULE]
        _run([*cython, "--output-file", generated, str(source)])
        _run([*shlex.split(compiler), *FLAGS, f"-I{headers}", generated, "-o", linked])
        Path(linked).replace(module)


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(  # noqa: S603 - the commands are ours, but for the user's own compiler
            command, check=True, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise NotCompiled(f"{command[0]}: {cause}") from cause
    except subprocess.CalledProcessError as cause:
        told = cause.stderr.strip().splitlines() or [f"exit {cause.returncode}"]
        raise NotCompiled(f"{command[0]}: {told[-1]}") from cause
