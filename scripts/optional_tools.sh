#!/bin/sh
# Bring the programs that some tests use and pip cannot install. Tests skip what is absent.
set -eu

command -v strace >/dev/null 2>&1 && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y strace; } >/dev/null 2>&1 ||
        true
fi
command -v strace >/dev/null 2>&1 ||
    echo "strace is not installed: tests that watch system calls are skipped (apt-get install strace)"
