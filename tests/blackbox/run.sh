#!/bin/sh
# Sets up and runs all black-box tests; arguments go to pytest. The exit code is pytest's.
set -eu
cd "$(dirname "$0")"
root=$(CDPATH='' cd -- ../.. && pwd)
. "$root/scripts/tools.sh"
need_mosquitto_passwd
need_mosquitto
need_prometheus
need_otelcol
need_helm
need_nats_server
need_kafka
./setup.sh
need_broker
# More workers than cores: most tests wait, few compute.
run_pytest -n "${WORKERS:-4}" --dist worksteal "$@"
