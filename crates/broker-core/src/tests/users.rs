//! Users of the control store that change while their clients are connected.

use super::check;

#[test]
fn a_client_has_the_rules_that_its_user_has_now() {
    check(
        "
        a connects
            a CONNACK 0x00
        b connects
            b CONNACK 0x00
        a logs in as a user of the store
        a SUBSCRIBE #1 secret 0 open 0
            a SUBACK #1 [00 00]
        b SUBSCRIBE #1 secret 0
            b SUBACK #1 [00]
        p connects
            p CONNACK 0x00
        p PUBLISH secret x 0
            a PUBLISH secret x 0
            b PUBLISH secret x 0
        the users of the store may not use secret
        a turn passes
        p PUBLISH secret y 0
            b PUBLISH secret y 0
        p PUBLISH open y 0
            a PUBLISH open y 0
        a UNSUBSCRIBE #2 secret
            a UNSUBACK #2 [11]
        ",
    );
}

#[test]
fn a_client_whose_user_is_gone_is_disconnected() {
    check(
        "
        a connects
            a CONNACK 0x00
        b connects
            b CONNACK 0x00
        a logs in as a user of the store
        the users of the store are gone
        a turn passes
            a DISCONNECT 0x87
            a is closed
        b PINGREQ
            b PINGRESP
        ",
    );
}
