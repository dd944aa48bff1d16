//! Durable sessions: what the inbox gives, and what it is told.

use super::check;

#[test]
fn messages_come_from_the_inbox_and_are_acknowledged_there() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            inbox of a: subscribe t
            a SUBACK #1 [01]
        the inbox gives 1 t x 1
            a PUBLISH t x 1 #1
        the inbox gives 2 t y 1
            a PUBLISH t y 1 #2
        a PUBACK #1
            inbox of a: done with 1
        a PUBACK #2
            inbox of a: done with 2
        ",
    );
}

#[test]
fn qos_2_is_recorded_at_pubrec_before_pubrel() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a SUBSCRIBE #1 t 2
            inbox of a: subscribe t
            a SUBACK #1 [02]
        the inbox gives 1 t x 2
            a PUBLISH t x 2 #1
        the store waits
        a PUBREC #1
            inbox of a: received 1
        the store answers
            a PUBREL #1
        a PUBCOMP #1
            inbox of a: done with 1
        ",
    );
}

#[test]
fn qos_0_goes_directly_while_the_client_is_connected() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            inbox of a: subscribe t
            a SUBACK #1 [01]
        p connects
            p CONNACK 0x00
        p PUBLISH t x 0
            a PUBLISH t x 0
        ",
    );
}

#[test]
fn a_lost_connection_is_recorded() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            inbox of a: subscribe t
            a SUBACK #1 [01]
        a is lost
            inbox of a: detach
            session of a: disconnect, expiry 3600, will: discard
        the store resumes
        a connects resume
            session of a: claim
            inbox of a: resume
            a CONNACK 0x00 present
        ",
    );
}

#[test]
fn a_subscription_is_answered_when_it_is_recorded() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        the store waits
        a SUBSCRIBE #1 t 1
            inbox of a: subscribe t
        the store answers
            a SUBACK #1 [01]
        the store waits
        a UNSUBSCRIBE #2 t
            inbox of a: unsubscribe t
        the store answers
            a UNSUBACK #2 [00]
        ",
    );
}

#[test]
fn a_publication_of_qos_2_is_known_by_its_origin_until_pubrel() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a PUBLISH t x 2 #7
            inboxes: publish t #7
            a PUBREC #7
        a PUBLISH t x 2 #7 dup
            a PUBREC #7
        a PUBREL #7
            inboxes: release #7
            a PUBCOMP #7
        a PUBREL #7
            a PUBCOMP #7 0x92
        ",
    );
}

#[test]
fn a_publication_of_qos_2_that_a_shard_may_keep_is_not_refused() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        the store waits
        a PUBLISH t x 2 #7
            inboxes: publish t #7
        the store fails
            inbox of a: detach
            session of a: disconnect, expiry 3600, will: discard
            a DISCONNECT 0x89
            a is closed
            dropped: t store_failed
        the store resumes
        a connects resume
            session of a: claim
            inbox of a: resume
            a CONNACK 0x00 present
        a PUBLISH t x 2 #7 dup
            inboxes: publish t #7
            a PUBREC #7
        ",
    );
}

#[test]
fn messages_wait_for_the_receive_maximum() {
    check(
        "
        a connects durable inflight 1
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            inbox of a: subscribe t
            a SUBACK #1 [01]
        the inbox gives 1 t x 1
            a PUBLISH t x 1 #1
        the inbox gives 2 t y 1
        a PUBACK #1
            inbox of a: done with 1
            a PUBLISH t y 1 #2
        ",
    );
}

#[test]
fn an_old_page_is_not_for_the_new_connection() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            inbox of a: subscribe t
            a SUBACK #1 [01]
        a is lost
            inbox of a: detach
            session of a: disconnect, expiry 3600, will: discard
        the inbox gives 1 t x 1
        ",
    );
}
