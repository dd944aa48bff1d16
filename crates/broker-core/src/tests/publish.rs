//! The way of a publication, and its acknowledgement.

use super::check;

#[test]
fn a_message_reaches_all_who_subscribe_in_whichever_loop() {
    check(
        "
        a connects
            a CONNACK 0x00
        b connects on 1
            b CONNACK 0x00
        p connects
            p CONNACK 0x00
        a SUBSCRIBE #1 t/+ 0
            a SUBACK #1 [00]
        b SUBSCRIBE #1 t/1 1
            b SUBACK #1 [01]
        p PUBLISH t/1 hello 1 #5
            a PUBLISH t/1 hello 0
            b PUBLISH t/1 hello 1 #1
            p PUBACK #5
        p PUBLISH other hello 1 #6
            p PUBACK #6 0x10
        ",
    );
}

#[test]
fn puback_follows_the_sync_of_every_inbox_that_matches() {
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
        p PUBLISH t x 1 #5
            inboxes: publish t
        p PUBLISH none y 1 #6
        the store answers
            p PUBACK #5
            p PUBACK #6 0x10
        ",
    );
}

#[test]
fn acknowledgements_keep_the_order_of_the_publications() {
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
        p PUBLISH t x 2 #5
            inboxes: publish t
        p PUBLISH none y 2 #6
        the store answers
            p PUBREC #5
            p PUBREC #6 0x10
        ",
    );
}

#[test]
fn a_store_that_fails_refuses_the_publication() {
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
        p SUBSCRIBE #1 t 0
            p SUBACK #1 [00]
        the store waits
        p PUBLISH t x 1 #5
            inboxes: publish t
            p PUBLISH t x 0
        the store fails
            p PUBACK #5 0x83
            dropped: t store_failed
        ",
    );
}

#[test]
fn a_client_before_5_0_cannot_be_told_and_is_disconnected() {
    check(
        "
        d connects durable
            session of d: claim
            inbox of d: begin
            d CONNACK 0x00
        d SUBSCRIBE #1 t 1
            inbox of d: subscribe t
            d SUBACK #1 [01]
        p connects v3
            p CONNACK 0x00
        the store waits
        p PUBLISH t x 1 #5
            inboxes: publish t
        the store fails
            p is closed
            dropped: t store_failed
        ",
    );
}

#[test]
fn a_full_queue_refuses_the_publication() {
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
        the store refuses
        p PUBLISH t x 1 #5
            inboxes: publish t
            p PUBACK #5 0x97
        p PUBLISH t x 1 #6
            inboxes: publish t
            p PUBACK #6
        ",
    );
}

#[test]
fn a_retained_message_is_acknowledged_when_it_is_kept() {
    check(
        "
        p connects
            p CONNACK 0x00
        the store waits
        p PUBLISH t x 1 #5 retain
            retained: keep t
        the store answers
            p PUBACK #5 0x10
        ",
    );
}

#[test]
fn the_brokers_own_topics_are_its_own() {
    check(
        "
        p connects
            p CONNACK 0x00
        p PUBLISH $SYS/x y 1 #5
            p PUBACK #5 0x87
            dropped: $SYS/x reserved_topic
        p PUBLISH $SYSTEM/x y 1 #6
            p PUBACK #6 0x10
        ",
    );
}

#[test]
fn the_notifications_of_a_bridge_are_dropped() {
    check(
        "
        a connects
            a CONNACK 0x00
        a PUBLISH $SYS/broker/connection/edge/state 1 1 #5 retain
            a PUBACK #5 0x10
            dropped: $SYS/broker/connection/edge/state bridge_notification
        a PUBLISH $SYS/broker/connection/state 1 1 #6
            a PUBACK #6 0x87
            dropped: $SYS/broker/connection/state reserved_topic
        b connects bridge
            b CONNACK 0x00
        b PUBLISH $SYS/broker/connection/edge/state 1 1 #7 retain
            b PUBACK #7
            dropped: $SYS/broker/connection/edge/state bridge_notification
        ",
    );
}

#[test]
fn a_bridge_gets_what_others_publish_with_its_retain_flag() {
    check(
        "
        b connects bridge
            b CONNACK 0x00
        b SUBSCRIBE #1 t/# 1 $share/g/s 0
            b SUBACK #1 [01 00]
        p connects
            p CONNACK 0x00
        p PUBLISH t/1 x 1 #5 retain
            retained: keep t/1
            b PUBLISH t/1 x 1 #1 retain
            p PUBACK #5
        b PUBACK #1
        b PUBLISH t/1 y 1 #6
            b PUBACK #6
        b PUBLISH s z 0
            b PUBLISH s z 0
        ",
    );
}

#[test]
fn what_is_published_and_not_acknowledged_is_stored_though_the_publisher_is_gone() {
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
        p PUBLISH t x 1 #5
            inboxes: publish t
        p is lost
        the store answers
        ",
    );
}

#[test]
fn no_local_keeps_a_message_from_its_publisher() {
    check(
        "
        a connects
            a CONNACK 0x00
        b connects
            b CONNACK 0x00
        a SUBSCRIBE #1 t 0n
            a SUBACK #1 [00]
        b SUBSCRIBE #1 t 0n
            b SUBACK #1 [00]
        a PUBLISH t x 0
            b PUBLISH t x 0
        ",
    );
}

#[test]
fn qos_2_is_delivered_once_however_often_it_is_sent() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 2
            a SUBACK #1 [02]
        p connects
            p CONNACK 0x00
        p PUBLISH t x 2 #3
            a PUBLISH t x 2 #1
            p PUBREC #3
        p PUBLISH t x 2 #3 dup
            p PUBREC #3
        p PUBREL #3
            p PUBCOMP #3
        p PUBLISH t y 2 #3
            a PUBLISH t y 2 #2
            p PUBREC #3
        ",
    );
}

#[test]
fn a_message_for_other_loops_keeps_its_order() {
    check(
        "
        a connects on 1
            a CONNACK 0x00
        a SUBSCRIBE #1 # 0
            a SUBACK #1 [00]
        p connects
            p CONNACK 0x00
        p PUBLISH t 1 0
            a PUBLISH t 1 0
        p PUBLISH u 2 0
            a PUBLISH u 2 0
        p PUBLISH t 3 0
            a PUBLISH t 3 0
        ",
    );
}

#[test]
fn qos_0_waits_for_nobody() {
    check(
        "
        d connects durable
            session of d: claim
            inbox of d: begin
            d CONNACK 0x00
        d SUBSCRIBE #1 t 1
            inbox of d: subscribe t
            d SUBACK #1 [01]
        d is lost
            inbox of d: detach
            session of d: disconnect, expiry 3600, will: discard
        p connects
            p CONNACK 0x00
        the store waits
        p PUBLISH t x 0
            inboxes: publish t
        p PUBLISH t y 1 #1
            inboxes: publish t
        p PINGREQ
            p PINGRESP
        the store answers
            p PUBACK #1
        ",
    );
}

#[test]
fn a_publisher_that_comes_back_repeats_what_was_not_acknowledged() {
    check(
        "
        d connects durable
            session of d: claim
            inbox of d: begin
            d CONNACK 0x00
        d SUBSCRIBE #1 t 2
            inbox of d: subscribe t
            d SUBACK #1 [02]
        p connects durable
            session of p: claim
            inbox of p: begin
            p CONNACK 0x00
        the store waits
        p PUBLISH t x 2 #4
            inboxes: publish t #4
        p is lost
            inbox of p: detach
            session of p: disconnect, expiry 3600, will: discard
        the store answers
        the store resumes
        p connects resume
            session of p: claim
            inbox of p: resume
            p CONNACK 0x00 present
        p PUBLISH t x 2 #4 dup
            inboxes: publish t #4
            p PUBREC #4
        p PUBREL #4
            inboxes: release #4
            p PUBCOMP #4
        ",
    );
}
