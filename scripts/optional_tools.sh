#!/bin/sh
# Bring the programs that some tests use and pip cannot install. Tests skip what is absent.
set -eu

has() {
    command -v "$1" >/dev/null 2>&1
}

absent=
for tool in strace kcat chromium; do
    has "$tool" || absent="$absent $tool"
done
[ -n "$absent" ] || exit 0

if [ "$(id -u)" = 0 ] && has apt-get; then
    # shellcheck disable=SC2086
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y $absent; } >/dev/null 2>&1 ||
        true
fi
for tool in $absent; do
    has "$tool" ||
        echo "$tool is not installed: tests that use it are skipped (apt-get install $tool)"
done
