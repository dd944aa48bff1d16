#!/bin/sh
# Runs the tests under the controllers of Kubernetes, which are built the first time; arguments go to pytest, and the exit code is
# pytest's. Only root can: pods have networks of their own.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/scripts/tools.sh"
[ "$(id -u)" = 0 ] || fail "only root can give pods a network of their own"
need ip iproute2
need nft nftables
need_kubernetes
"$root/tests/blackbox/setup.sh"
need_broker
cd "$root/tests/cluster"
# Whoever starts this wants all of it: none of it belongs to the quick suite.
unset HERALD_SUITE
run_pytest -n 0 "$@" test_controllers.py
