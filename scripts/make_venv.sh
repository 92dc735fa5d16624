#!/bin/sh
# Make a virtual environment: make_venv.sh PYTHON DIRECTORY
#
# Finds a Python that Millstream is tested with. As root, installs what is missing with apt-get.
# Otherwise says in one line what is missing.
set -eu

wanted=$1
directory=$2

fail() {
    echo "millstream: $*" >&2
    exit 1
}

fits() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null
}

has_venv() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    echo "Installing $1 with apt-get"
    # A machine that was just started may be updating itself.
    {
        apt-get update &&
            DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y "$1"
    } >/dev/null 2>&1
}

python=
if fits "$wanted"; then
    python=$wanted
elif [ "$wanted" != python3 ]; then
    # A Python that was asked for by name is not replaced by another.
    command -v "$wanted" >/dev/null 2>&1 || fail "$wanted: command not found; set PYTHON to another"
    version=$("$wanted" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>&1) ||
        fail "$wanted does not run: $(echo "$version" | head -n 1)"
    fail "$wanted is Python $version; Millstream needs 3.11 to 3.14: set PYTHON to one of them"
else
    candidates="python3.14 python3.13 python3.12 python3.11"
    for candidate in $candidates; do
        if [ -z "$python" ] && fits "$candidate"; then python=$candidate; fi
    done
    for candidate in $candidates; do
        if [ -z "$python" ] && install "$candidate-venv" && fits "$candidate"; then
            python=$candidate
        fi
    done
fi
[ -n "$python" ] || fail "needs Python 3.11, 3.12, 3.13 or 3.14: install one, with its module venv"

if ! has_venv "$python"; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    install "$package" && has_venv "$python" ||
        fail "$python cannot make virtual environments: sudo apt-get install -y $package"
fi

"$python" -m venv "$directory" || fail "$python could not make $directory"
