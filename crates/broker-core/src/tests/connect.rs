//! CONNECT and the end of connections.

use super::check;

#[test]
fn a_clean_session_needs_no_store() {
    check(
        "
        the store waits
        a connects
            a CONNACK 0x00
        a PINGREQ
            a PINGRESP
        a DISCONNECT
            a is closed
        ",
    );
}

#[test]
fn a_durable_session_is_answered_when_the_store_has_recorded_it() {
    check(
        "
        the store waits
        a connects durable
            session of a: claim
        the store answers
            inbox of a: begin
            a CONNACK 0x00
        the store waits
        a DISCONNECT
            inbox of a: detach
            session of a: disconnect, expiry 3600, will: discard
        the store answers
            a is closed
        ",
    );
}

#[test]
fn a_durable_session_is_refused_when_the_store_cannot_record_it() {
    check(
        "
        the store waits
        a connects durable
            session of a: claim
        the store fails
            a CONNACK 0x88
            a is closed
        ",
    );
}

#[test]
fn what_comes_behind_connect_waits_for_the_store() {
    check(
        "
        the store waits
        a connects durable
            session of a: claim
        a SUBSCRIBE #1 t 1
        a PUBLISH t x 0
        the store answers
            inbox of a: begin
            inbox of a: subscribe t
            a CONNACK 0x00
            a SUBACK #1 [01]
            a PUBLISH t x 0
        b connects
            b CONNACK 0x00
        b SUBSCRIBE #1 t 0
            b SUBACK #1 [00]
        a PUBLISH t y 0
            a PUBLISH t y 0
            b PUBLISH t y 0
        ",
    );
}

#[test]
fn a_second_connect_ends_the_connection() {
    check(
        "
        a connects
            a CONNACK 0x00
        a CONNECT
            a DISCONNECT 0x82
            a is closed
        a connects
            a CONNACK 0x00
        ",
    );
}

#[test]
fn a_connection_without_connect_is_closed_in_time() {
    check(
        "
        a opens a connection
        after 9999 ms
        after 1 ms
            a is closed
        ",
    );
}

#[test]
fn another_packet_than_connect_closes_the_connection() {
    check(
        "
        a opens a connection
        a PINGREQ
            a is closed
        ",
    );
}

#[test]
fn a_silent_client_is_disconnected_after_one_and_a_half_keep_alives() {
    check(
        "
        a connects keepalive 10
            a CONNACK 0x00
        after 10000 ms
        a PINGREQ
            a PINGRESP
        after 14999 ms
        after 1 ms
            a DISCONNECT 0x8d
            a is closed
        ",
    );
}

#[test]
fn a_client_that_the_store_records_too_late_is_disconnected_there() {
    check(
        "
        the store waits
        a connects durable
            session of a: claim
        a is lost
            a is closed
        the store answers
            session of a: disconnect, expiry 3600, will: discard
        ",
    );
}

#[test]
fn a_shutdown_publishes_wills_and_tells_clients() {
    check(
        "
        a connects will w gone
            session of a: claim with a will
            a CONNACK 0x00
        b connects on 1 durable
            session of b: claim
            inbox of b: begin
            b CONNACK 0x00
        nobody is let in
        c connects
            c is closed
        wills are published
            session of a: will due 1
        everybody is disconnected
            session of a: disconnect, expiry 0, will: keep
            inbox of b: detach
            session of b: disconnect, expiry 3600, will: discard
            a DISCONNECT 0x8b
            a is closed
            b DISCONNECT 0x8b
            b is closed
        ",
    );
}

#[test]
fn a_drained_node_sends_its_clients_elsewhere() {
    check(
        "
        a connects
            a CONNACK 0x00
        b connects on 1 v3
            b CONNACK 0x00
        clients are sent to 10.0.0.2:1883
            a DISCONNECT 0x9c
            a is closed
            b is closed
        c connects
            c CONNACK 0x9c
            c is closed
        the drain ends
        c connects
            c CONNACK 0x00
        ",
    );
}

#[test]
fn a_connect_that_was_recorded_before_the_node_was_taken_for_dead_is_refused() {
    check(
        "
        the store waits
        a connects durable
            session of a: claim
        the store answers so far
            inbox of a: begin
        the store takes the node for dead
            a CONNACK 0x88
            a is closed
        the store answers
            session of a: disconnect, expiry 3600, will: discard
            inbox of a: detach
        ",
    );
}
