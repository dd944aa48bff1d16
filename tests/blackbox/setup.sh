#!/bin/sh
# Installs what the black-box tests need, beside them. Quick when nothing has changed.
set -eu
cd "$(dirname "$0")"
root=$(CDPATH='' cd -- ../.. && pwd)
. "$root/scripts/tools.sh"

python3 -c 'import venv, ensurepip' 2>/dev/null || fail "python3 with venv is needed (Debian: apt-get install python3-venv)"
command -v npm >/dev/null || fail "Node.js with npm is needed for the MQTT.js tests (Debian: apt-get install nodejs npm)"
need_go

if ! cmp -s requirements.txt .venv/installed; then
    [ -x .venv/bin/python ] || python3 -m venv .venv
    .venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
    cp requirements.txt .venv/installed
fi
if ! cmp -s package-lock.json node_modules/installed; then
    npm ci --silent --no-audit --no-fund
    cp package-lock.json node_modules/installed
fi
need mosquitto_rr mosquitto-clients
(cd clients/go && "$go" build -o ../../.venv/goclient .)
