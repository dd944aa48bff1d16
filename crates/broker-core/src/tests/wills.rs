//! Will messages.

use super::check;

#[test]
fn a_will_is_recorded_with_the_connection() {
    check(
        "
        the store waits
        a connects will w gone
            session of a: claim with a will
        the store answers
            a CONNACK 0x00
        s connects
            s CONNACK 0x00
        s SUBSCRIBE #1 w 1
            s SUBACK #1 [01]
        a is lost
            session of a: disconnect, expiry 0, will: keep
        ",
    );
}

#[test]
fn a_will_that_is_a_bridges_notification_is_not_kept() {
    check(
        "
        a connects bridge will $SYS/broker/connection/edge/state 0
            a CONNACK 0x00
            dropped: $SYS/broker/connection/edge/state bridge_notification
        a is lost
        b connects bridge durable will $SYS/broker/connection/edge/state 0
            session of b: claim
            inbox of b: begin
            b CONNACK 0x00
            dropped: $SYS/broker/connection/edge/state bridge_notification
        c connects bridge will $SYS/broker/connection/state 0
            c CONNACK 0x87
            c is closed
            dropped: $SYS/broker/connection/state reserved_topic
        ",
    );
}

#[test]
fn disconnect_discards_the_will() {
    check(
        "
        a connects will w gone
            session of a: claim with a will
            a CONNACK 0x00
        a DISCONNECT
            session of a: disconnect, expiry 0, will: discard
            a is closed
        ",
    );
}

#[test]
fn disconnect_with_will_message_keeps_it() {
    check(
        "
        a connects will w gone
            session of a: claim with a will
            a CONNACK 0x00
        a DISCONNECT with-will
            session of a: disconnect, expiry 0, will: keep
            a is closed
        ",
    );
}

#[test]
fn a_will_that_is_due_is_published_and_then_forgotten() {
    check(
        "
        s connects
            s CONNACK 0x00
        s SUBSCRIBE #1 will/a 1
            s SUBACK #1 [01]
        the will of a is due
            session of a: will fired
            inboxes: release #0
            s PUBLISH will/a gone 1 #1
        ",
    );
}

#[test]
fn a_will_with_a_delay_is_the_session_stores_to_time() {
    check(
        "
        a connects durable will w gone 30
            session of a: claim with a will
            inbox of a: begin
            a CONNACK 0x00
        a is lost
            inbox of a: detach
            session of a: disconnect, expiry 3600, will: keep
        ",
    );
}

#[test]
fn a_will_that_is_due_waits_for_the_inboxes_before_it_is_forgotten() {
    check(
        "
        d connects durable
            session of d: claim
            inbox of d: begin
            d CONNACK 0x00
        d SUBSCRIBE #1 will/+ 1
            inbox of d: subscribe will/+
            d SUBACK #1 [01]
        d is lost
            inbox of d: detach
            session of d: disconnect, expiry 3600, will: discard
        the store waits
        the will of a is due
            inboxes: publish will/a #0
        the store answers
            session of a: will fired
            inboxes: release #0
        ",
    );
}
