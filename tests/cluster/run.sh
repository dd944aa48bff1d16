#!/bin/sh
# Sets up and runs the tests with clusters of real processes; arguments go to pytest. The exit code is
# pytest's. As root each node has a network of its own, whose links can be cut; otherwise the tests that cut
# links are skipped.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/scripts/tools.sh"
if [ "$(id -u)" = 0 ]; then
    need ip iproute2
    need nft nftables
    need mkfs.ext4 e2fsprogs
fi
need cc build-essential
need faketime faketime
need_prometheus
need_helm
"$root/tests/blackbox/setup.sh"
need_broker
cd "$root/tests/cluster"
# Each test with faults needs its nodes' share of the machine to itself for some seconds: few at a time.
run_pytest -n "${WORKERS:-2}" --dist worksteal "$@"
