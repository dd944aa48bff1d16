#!/bin/sh
# Sets up and runs all black-box tests; arguments go to pytest. The exit code is pytest's.
set -eu
cd "$(dirname "$0")"
root=$(CDPATH='' cd -- ../.. && pwd)
. "$root/scripts/tools.sh"
need_mosquitto_passwd
./setup.sh
[ -x "${HERALDMQ_BIN:-../../target/release/heraldmq}" ] || {
    echo "tests/blackbox: no broker at ${HERALDMQ_BIN:-../../target/release/heraldmq}; build it (cargo build --release) or set HERALDMQ_BIN" >&2
    exit 1
}
# More workers than cores: most tests wait, few compute.
exec .venv/bin/python -m pytest -n "${WORKERS:-4}" --dist worksteal "$@"
