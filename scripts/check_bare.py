#!/usr/bin/env python3
"""Follow the README's first commands on a bare Debian: check_bare.py [--suite SUITE]

Makes a Debian (debootstrap) with make, python3, its venv and the certificates of the registries,
clones the last commit into it and runs `make demo` and `make test` there, as root and as a plain
user, each in a fresh copy. Prints a row for each command. Exits with 1 if one failed, or if root's
tests were left out for want of a program: root can install every one.

Needs root and debootstrap. The base system is kept in a cache, so that the next run is faster. The
logs are kept if a command failed.
Invariant: mounts and processes live in namespaces of their own, which end with this process.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millstream"
PACKAGES = ("ca-certificates", "make", "python3", "python3-venv")
COMMANDS = ("make demo", "make test")
ACCOUNT = "newcomer"
# Each with its home directory.
USERS = {"root": "root", "plain": f"home/{ACCOUNT}"}
ROW = "{:<8} {:<6} {:<24} {:<8} {:>7}  {}"
CLOSING_LINES = 3

# Host settings needed to reach package registries.
_COPIED = ("etc/resolv.conf", "etc/hosts", "etc/pip.conf", "usr/local/share/ca-certificates")
_APT_OPTION = re.compile(r"^Acquire::(?:https?|Check-Valid-Until|Retries)\b.*;$", re.MULTILINE)
_VARIABLE = re.compile(r"(?i)PIP_\w+|\w+_proxy|SSL_CERT_(?:FILE|DIR)|\w+_CA_BUNDLE|LANG")
# Written by tests/fakes/programs.py.
_LEFT_OUT = re.compile(r"^left out \d+ tests?\b", re.MULTILINE)

_INSIDE = """
set -eu
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
shift
exec chroot "$@"
"""


@dataclass(frozen=True)
class Outcome:
    user: str
    command: str
    exit_code: int
    seconds: float
    output: str

    @property
    def result(self) -> str:
        if self.exit_code != 0:
            return f"exit {self.exit_code}"
        is_incomplete = self.user == "root" and _LEFT_OUT.search(self.output)
        return "left out" if is_incomplete else "ok"

    @property
    def closing_lines(self) -> list[str]:
        return [line for line in self.output.splitlines() if line.strip()][-CLOSING_LINES:]


def main() -> int:
    options = _options()
    # So that the clean-up happens then too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    outcomes: list[Outcome] = []
    with workplace(options.directory, is_kept=options.keep) as work:
        base = base_system(options.suite, work, options.cache)
        for user in options.user or USERS:
            machine = work / f"{options.suite}-{user}"
            make_machine(machine, base, user)
            for command in options.command or COMMANDS:
                log = work / f"{options.suite}-{user}-{len(outcomes) + 1}.log"
                print(f"{options.suite}, {user}: {command} (log: {log})", flush=True)
                outcomes.append(run_inside(machine, user, command, log))
                show(options.suite, outcomes[-1])
            if not options.keep:
                shutil.rmtree(machine)
        is_ok = all(each.result == "ok" for each in outcomes)
        if is_ok and not options.keep:
            delete_logs(work)
    print(ROW.format("suite", "user", "command", "result", "seconds", "closing line"))
    for each in outcomes:
        show(options.suite, each)
    return 0 if is_ok else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Run the README's first commands on a bare Debian, and print what happened."
    )
    parser.add_argument("--suite", default="trixie", help="a release of Debian (%(default)s)")
    parser.add_argument("--user", action="append", choices=list(USERS), help="(both)")
    parser.add_argument("--command", action="append", help=f"({', then '.join(COMMANDS)})")
    parser.add_argument("--cache", type=Path, default=CACHE, help="for base systems (%(default)s)")
    parser.add_argument(
        "--directory", type=Path, help="for the machines and logs (a temporary one)"
    )
    parser.add_argument("--keep", action="store_true", help="delete nothing at the end")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("only root can do this")
    if shutil.which("debootstrap") is None:
        parser.error("needs debootstrap: apt-get install -y debootstrap")
    return options


@contextmanager
def workplace(directory: Path | None, *, is_kept: bool) -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix="bare-", dir=directory))
    # A plain user must be able to walk through it.
    work.chmod(0o755)
    try:
        yield work
    except BaseException:
        for log in work.glob("*.log"):
            print(f"--- end of {log.name}", *log.read_text().splitlines()[-20:], sep="\n")
        raise
    finally:
        if not is_kept:
            for machine in work.iterdir():
                if machine.is_dir():
                    shutil.rmtree(machine)
        if any(work.iterdir()):
            print(f"kept {work}")
        else:
            work.rmdir()


def delete_logs(work: Path) -> None:
    for log in work.glob("*.log"):
        log.unlink()


def base_system(suite: str, work: Path, cache: Path) -> Path:
    """An archive of a Debian with what a newcomer is asked to have; without host settings."""
    packages = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:8]
    archive = cache / f"bare-{suite}-{packages}.tar"
    if archive.exists():
        return archive
    print(f"making a base system of {suite} in {archive}", flush=True)
    base, log = work / "base", work / "debootstrap.log"
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    # A release that is newer than debootstrap is made as the newest one that it knows.
    is_known = Path("/usr/share/debootstrap/scripts", suite).exists()
    command += [suite, str(base), debian_mirror(), *([] if is_known else ["sid"])]
    with log.open("w") as output:
        subprocess.run(command, check=True, stdout=output, stderr=subprocess.STDOUT)
    add_user = ["useradd", "--create-home", "--shell", "/bin/bash", ACCOUNT]
    subprocess.run(["chroot", base, *add_user], check=True)
    cache.mkdir(parents=True, exist_ok=True)
    # Moved into place whole, so that an interrupted run leaves no half of it.
    fresh = archive.with_suffix(f".{os.getpid()}")
    subprocess.run(["tar", "--create", "--file", fresh, "--directory", base, "."], check=True)
    fresh.replace(archive)
    shutil.rmtree(base)
    return archive


def debian_mirror() -> str:
    """The one that this machine uses; if it is no Debian, that of debootstrap's own choice."""
    asked = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(SITE) $(REPO_URI)"]
    listed = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    found = [line.split()[-1] for line in listed.splitlines() if line.startswith("Debian ")]
    return next((uri for uri in found if "security" not in uri), "")


def copy_host_settings(machine: Path) -> None:
    """As they are now: the base system may be older."""
    for name in _COPIED:
        copy_into(machine, name)
    dumped = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True)
    apt = "".join(f"{line}\n" for line in _APT_OPTION.findall(dumped.stdout))
    (machine / "etc/apt/apt.conf.d/99host").write_text(apt)
    subprocess.run(["chroot", machine, "update-ca-certificates"], check=True, capture_output=True)


def copy_into(machine: Path, name: str) -> None:
    source, target = Path("/", name), machine / name
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)


def make_machine(machine: Path, base: Path, user: str) -> None:
    machine.mkdir()
    subprocess.run(["tar", "--extract", "--file", base, "--directory", machine], check=True)
    copy_host_settings(machine)
    clone = machine / USERS[user] / "millstream"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, clone], check=True)
    if user != "root":
        owner = f"{ACCOUNT}:{ACCOUNT}"
        subprocess.run(["chroot", machine, "chown", "-R", owner, f"/{USERS[user]}"], check=True)


def run_inside(machine: Path, user: str, command: str, log: Path) -> Outcome:
    home = f"/{USERS[user]}"
    environment = {name: v for name, v in os.environ.items() if _VARIABLE.fullmatch(name)}
    # Drop variables that name files missing in the chroot.
    environment = {
        name: value
        for name, value in environment.items()
        if not value.startswith("/") or Path(machine, value.lstrip("/")).exists()
    }
    environment |= {"HOME": home, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"}
    as_user = [] if user == "root" else [f"--userspec={ACCOUNT}:{ACCOUNT}"]
    words = [*as_user, str(machine), "/bin/sh", "-c", f"cd {home}/millstream && {command}"]
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    started_at = time.monotonic()
    with log.open("w") as output:
        exit_code = subprocess.run(
            [*namespaces, "/bin/sh", "-c", _INSIDE, "inside", str(machine), *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    seconds = time.monotonic() - started_at
    return Outcome(user, command, exit_code, seconds, log.read_text(errors="replace"))


def show(suite: str, outcome: Outcome) -> None:
    first, *rest = outcome.closing_lines or [""]
    facts = (suite, outcome.user, outcome.command, outcome.result, f"{outcome.seconds:.0f}")
    print(ROW.format(*facts, first))
    for line in rest:
        print(ROW.format("", "", "", "", "", line), flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
