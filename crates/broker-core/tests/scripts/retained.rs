//! Retained messages.

use crate::check;

#[test]
fn an_empty_payload_removes_the_retained_message() {
    check(
        "
        p connects
            p CONNACK 0x00
        p PUBLISH t x 0 retain
            retained: keep t
        p PUBLISH t \"\" 1 #2 retain
            retained: remove t
            p PUBACK #2 0x10
        ",
    );
}

#[test]
fn those_who_subscribed_before_get_it_without_the_flag() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 0
            a SUBACK #1 [00]
        p connects
            p CONNACK 0x00
        p PUBLISH t x 0 retain
            retained: keep t
            a PUBLISH t x 0
        ",
    );
}

#[test]
fn retain_as_published_keeps_the_flag() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 0r
            a SUBACK #1 [00]
        p connects
            p CONNACK 0x00
        p PUBLISH t x 0 retain
            retained: keep t
            a PUBLISH t x 0 retain
        p PUBLISH t y 0
            a PUBLISH t y 0
        ",
    );
}

#[test]
fn retained_and_durable_are_both_waited_for() {
    check(
        "
        d connects durable
            session of d: claim
            inbox of d: begin
            d CONNACK 0x00
        d SUBSCRIBE #1 t 1
            inbox of d: subscribe t
            d SUBACK #1 [01]
        p connects
            p CONNACK 0x00
        the store waits
        p PUBLISH t x 1 #1 retain
            retained: keep t
            inboxes: publish t
        the store fails
            p PUBACK #1 0x83
            dropped: t store_failed
        ",
    );
}
