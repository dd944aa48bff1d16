# shellcheck shell=sh
# What every package has to do, sourced by its test. The test has two functions: `run_broker` runs the packaged broker in the
# place of the shell that calls it, and `client` runs one of its other commands. It needs a process namespace of its own, in
# which /proc shows no other broker.

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# expect WHAT FOUND WANTED
expect() {
    [ "$2" = "$3" ] || fail "$1: expected $3, found $2"
}

# Runs the broker until it is ready.
start() {
    log=${log:-/tmp/broker.log}
    (run_broker) >>"$log" 2>&1 &
    serving=$!
    for _ in $(seq 300); do
        kill -0 "$serving" 2>/dev/null || fail "the broker has ended: $(cat "$log")"
        ! client ready >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    fail "the broker does not answer: $(cat "$log")"
}

# SIGTERM, to the process that was started, which may be one that has started the broker. It has to end well, and soon.
stop() {
    asked=$(date +%s%N)
    kill "$serving"
    wait "$serving" || fail "the broker ended with $?: $(tail -n 5 "$log")"
    took=$((($(date +%s%N) - asked) / 1000000))
    [ "$took" -lt 5000 ] || fail "the broker took $took ms to end"
    ! client ready >/dev/null 2>&1 || fail "something still answers"
}

# kill -9, of the broker itself.
crash() {
    brokers=''
    for process in /proc/[0-9]*; do
        # Under an emulator the program is an argument.
        if tr '\0' ' ' <"$process/cmdline" 2>/dev/null | grep -q '/heraldmq serve'; then
            case $(readlink "$process/exe") in
                */heraldmq | */qemu-*) brokers="$brokers ${process#/proc/}" ;;
            esac
        fi
    done
    [ -n "$brokers" ] || fail "there is no broker to kill"
    # shellcheck disable=SC2086  # several numbers
    kill -9 $brokers
    ended=0
    wait "$serving" 2>/dev/null || ended=$?
    [ $ended -gt 0 ] || fail "the broker was killed, and its end looks well"
}

# The first message; SIGTERM; kill -9; what was acknowledged is there after each.
messages() {
    start
    client sub -c -i phone -q 1 -t 'alarms/#' -E
    client pub -q 1 -t alarms/door -m open
    client pub -q 1 -r -t state/door -m open
    expect "a retained message" "$(client sub -t 'state/#' -C 1 -W 20)" open
    stop
    ended_in=$took
    start
    expect "a message of before SIGTERM" "$(client sub -c -i phone -q 1 -t 'alarms/#' -C 1 -W 20)" open
    client pub -q 1 -t alarms/door -m closed
    crash
    start
    expect "a message of before kill -9" "$(client sub -c -i phone -q 1 -t 'alarms/#' -C 1 -W 20)" closed
    stop
    echo "messages, SIGTERM in $ended_in ms, kill -9"
}
