#!/bin/sh
# Measures what one client can cause (README.md). Without arguments in small, as pytest; arguments go to pytest.
#
#   run.sh                 small sizes: every attack against its bars
#   run.sh --full [...]    full sizes; writes docs/internals/adversary.md. Takes about an hour
set -eu
cd "$(dirname "$0")"
root=$(CDPATH='' cd -- ../.. && pwd)
. "$root/scripts/tools.sh"
# It changes keys of TLS, which Python cannot.
need openssl openssl
"$root/tests/blackbox/setup.sh"
need_broker
python="$root/tests/blackbox/.venv/bin/python"
if [ "${1:-}" = --full ]; then
    shift
    exec "$python" full.py --page "$root/docs/internals/adversary.md" "$@"
fi
# Two at a time: what is counted is the broker's own.
run_pytest -n "${WORKERS:-2}" --dist loadgroup "$@"
