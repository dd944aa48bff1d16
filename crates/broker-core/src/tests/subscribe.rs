//! SUBSCRIBE and UNSUBSCRIBE.

use super::check;

#[test]
fn each_filter_is_answered_in_its_place() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t/# 1 u/+ 2 $share/g/v 0
            a SUBACK #1 [01 02 00]
        a UNSUBSCRIBE #2 t/# none u/+
            a UNSUBACK #2 [00 11 00]
        ",
    );
}

#[test]
fn overlapping_subscriptions_bring_a_message_once_with_the_highest_qos() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t/# 0 t/+ 1 t/1 2
            a SUBACK #1 [00 01 02]
        p connects
            p CONNACK 0x00
        p PUBLISH t/1 x 2 #9
            a PUBLISH t/1 x 2 #1
            p PUBREC #9
        p PUBREL #9
            p PUBCOMP #9
        a PUBREC #1
            a PUBREL #1
        a PUBCOMP #1
        ",
    );
}

#[test]
fn what_is_unsubscribed_brings_nothing_more() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            a SUBACK #1 [01]
        p connects
            p CONNACK 0x00
        p PUBLISH t x 1 #1
            a PUBLISH t x 1 #1
            p PUBACK #1
        a PUBACK #1
        a UNSUBSCRIBE #2 t
            a UNSUBACK #2 [00]
        p PUBLISH t y 1 #2
            p PUBACK #2 0x10
        ",
    );
}

#[test]
fn subscriptions_end_with_a_clean_session() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            a SUBACK #1 [01]
        a DISCONNECT
            a is closed
        p connects
            p CONNACK 0x00
        p PUBLISH t x 1 #1
            p PUBACK #1 0x10
        ",
    );
}

#[test]
fn subscribing_again_replaces_the_options() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 0
            a SUBACK #1 [00]
        a SUBSCRIBE #2 t 1
            a SUBACK #2 [01]
        p connects
            p CONNACK 0x00
        p PUBLISH t x 1 #1
            a PUBLISH t x 1 #1
            p PUBACK #1
        ",
    );
}

#[test]
fn a_filter_with_the_wildcard_first_does_not_match_dollar_topics() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 # 0 +/x 0
            a SUBACK #1 [00 00]
        p connects
            p CONNACK 0x00
        p PUBLISH $dollar/x y 0
        p PUBLISH plain/x y 0
            a PUBLISH plain/x y 0
        ",
    );
}

#[test]
fn an_invalid_filter_is_refused_by_its_reason_code() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 a/#/b 0
            a SUBACK #1 [8f]
        ",
    );
}

#[test]
fn what_comes_behind_subscribe_waits_for_the_inbox() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        the store waits
        a SUBSCRIBE #1 t 1
            inbox of a: subscribe t
        a PINGREQ
        the store answers
            a SUBACK #1 [01]
            a PINGRESP
        ",
    );
}

#[test]
fn a_subscription_that_cannot_be_recorded_is_refused() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        the store waits
        a SUBSCRIBE #1 t 1 u 0
            inbox of a: subscribe t u
        the store fails
            a SUBACK #1 [83 83]
        p connects
            p CONNACK 0x00
        p PUBLISH t x 0
        ",
    );
}
