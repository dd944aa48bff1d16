#!/bin/sh
# Installs what the black-box tests need, beside them. Quick when nothing has changed.
set -eu
cd "$(dirname "$0")"

fail() { echo "tests/blackbox: $*" >&2; exit 1; }

python3 -c 'import venv, ensurepip' 2>/dev/null || fail "python3 with venv is needed (Debian: apt-get install python3-venv)"
command -v npm >/dev/null || fail "Node.js with npm is needed for the MQTT.js tests (Debian: apt-get install nodejs npm)"
GO=$(command -v go || echo /usr/local/go/bin/go)
[ -x "$GO" ] || fail "Go is needed for the Go client tests (https://go.dev/dl, or Debian: apt-get install golang-go)"

if ! cmp -s requirements.txt .venv/installed; then
    [ -x .venv/bin/python ] || python3 -m venv .venv
    .venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
    cp requirements.txt .venv/installed
fi
if ! cmp -s package-lock.json node_modules/installed; then
    npm ci --silent --no-audit --no-fund
    cp package-lock.json node_modules/installed
fi
if ! command -v mosquitto_rr >/dev/null; then
    [ "$(id -u)" = 0 ] || fail "mosquitto-clients is needed (apt-get install mosquitto-clients)"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y mosquitto-clients >/dev/null
fi
(cd clients/go && "$GO" build -o ../../.venv/goclient .)
