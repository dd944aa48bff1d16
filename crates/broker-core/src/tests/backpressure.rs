//! Publishers that have to wait, and subscribers that do not read.

use super::{World, check, check_with};

#[test]
fn publishers_wait_while_the_store_is_over_its_limit() {
    check(
        "
        p connects
            p CONNACK 0x00
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 0
            a SUBACK #1 [00]
        the store is over its limit
        p PUBLISH t x 1 #1
        p PINGREQ
        the store has room
        after 2 ms
            a PUBLISH t x 0
            p PUBACK #1
            p PINGRESP
        ",
    );
}

#[test]
fn publishers_wait_while_memory_is_scarce() {
    check(
        "
        p connects
            p CONNACK 0x00
        memory is scarce
        p PUBLISH t x 1 #1
        memory is free
        after 100 ms
            p PUBACK #1 0x10
        ",
    );
}

#[test]
fn a_window_that_is_full_holds_messages_back() {
    check(
        "
        a connects inflight 1
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            a SUBACK #1 [01]
        p connects
            p CONNACK 0x00
        p PUBLISH t 1 1 #1
            a PUBLISH t 1 1 #1
            p PUBACK #1
        p PUBLISH t 2 1 #2
            p PUBACK #2
        a PUBACK #1
            a PUBLISH t 2 1 #2
        ",
    );
}

#[test]
fn a_full_subscriber_holds_its_publisher_back() {
    let world = World::with(|settings| settings.limits.policy.queue_messages = 2);
    check_with(
        world,
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            a SUBACK #1 [01]
        p connects
            p CONNACK 0x00
        a stops reading
        p PUBLISH t 1 1 #1
            p PUBACK #1
        p PUBLISH t 2 1 #2
            p PUBACK #2
        p PUBLISH t 3 1 #3
            p PUBACK #3
        p PUBLISH t 4 1 #4
        a reads
            a PUBLISH t 1 1 #1
            a PUBLISH t 2 1 #2
            a PUBLISH t 3 1 #3
            a PUBLISH t 4 1 #4
            p PUBACK #4
        after 5000 ms
        ",
    );
}
