# Commands of documents that must not do here what they do elsewhere. Sourced before each block.

# Errors of HTTP count.
curl() { command curl -sS --fail-with-body "$@"; }

# A broker starts, says that it is ready, and is stopped: at free ports, with data of its own.
millstream() {
    if [ "$1" != serve ]; then
        "$PYTHON" -m millstream "$@"
        return
    fi
    local said=said.$BASHPID broker
    shift
    "$PYTHON" -m millstream serve "$@" --data-dir "served.$BASHPID" --kafka 127.0.0.1:0 \
        --http 127.0.0.1:0 --pylogstreams 127.0.0.1:0 > "$said" &
    broker=$!
    while kill -0 "$broker" 2> /dev/null && ! grep -q '^ready ' "$said"; do sleep 0.05; done
    kill "$broker" && wait "$broker"
}

# Whatever a page says to install is installed here, and what it calls an extra is one.
pip() { "$PYTHON" -m tests.documents.requirement "$@"; }

# That there is such a target.
make() { command make --dry-run --directory "$ROOT" "$@"; }

# The broker of this page, and no other that runs on this machine.
pgrep() { echo "$BROKER_PID"; }
