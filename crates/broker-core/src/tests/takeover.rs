//! The later connection of a client identifier.

use super::check;

#[test]
fn the_older_connection_is_told_and_closed() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 0
            a SUBACK #1 [00]
        a connects
            a DISCONNECT 0x8e
            a is closed
            a CONNACK 0x00
        p connects
            p CONNACK 0x00
        p PUBLISH t x 0
        ",
    );
}

#[test]
fn the_later_connection_may_come_in_another_loop() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            inbox of a: subscribe t
            a SUBACK #1 [01]
        the store resumes
        a connects on 1 resume
            inbox of a: detach
            session of a: disconnect, expiry 3600, will: discard
            session of a: claim
            inbox of a: resume
            a DISCONNECT 0x8e
            a is closed
            a CONNACK 0x00 present
        a PINGREQ
            a PINGRESP
        ",
    );
}

#[test]
fn of_those_that_wait_the_latest_has_the_session() {
    check(
        "
        the store waits
        a connects durable
            session of a: claim
        after 1 ms
        a connects on 1 durable
        after 1 ms
        a connects durable
            a CONNACK 0x00
            a DISCONNECT 0x8e
            a is closed
        the store answers
            inbox of a: begin
            inbox of a: detach
            session of a: disconnect, expiry 3600, will: discard
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
            a DISCONNECT 0x8e
            a is closed
            a CONNACK 0x00
        ",
    );
}

#[test]
fn a_subscription_of_the_older_connection_is_not_for_a_clean_later_one() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 0
            a SUBACK #1 [00]
        a connects on 1
            a DISCONNECT 0x8e
            a is closed
            a CONNACK 0x00
        p connects
            p CONNACK 0x00
        p PUBLISH t x 0
        ",
    );
}

#[test]
fn the_will_of_the_older_connection_is_kept_for_the_store_to_publish() {
    check(
        "
        a connects will w gone
            session of a: claim with a will
            a CONNACK 0x00
        a connects will w again
            session of a: disconnect, expiry 0, will: keep
            session of a: claim with a will
            a DISCONNECT 0x8e
            a is closed
            a CONNACK 0x00
        ",
    );
}
