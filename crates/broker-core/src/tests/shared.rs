//! Shared subscriptions.

use super::world::World;
use super::{check, check_with};

#[test]
fn one_member_gets_each_message_in_turn() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 $share/g/t 0
            a SUBACK #1 [00]
        b connects on 1
            b CONNACK 0x00
        b SUBSCRIBE #1 $share/g/t 0
            b SUBACK #1 [00]
        p connects
            p CONNACK 0x00
        p PUBLISH t 1 0
            a PUBLISH t 1 0
        p PUBLISH t 2 0
            b PUBLISH t 2 0
        p PUBLISH t 3 0
            a PUBLISH t 3 0
        b UNSUBSCRIBE #2 $share/g/t
            b UNSUBACK #2 [00]
        p PUBLISH t 4 0
            a PUBLISH t 4 0
        ",
    );
}

#[test]
fn what_a_member_did_not_acknowledge_goes_to_another() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 $share/g/t 1
            a SUBACK #1 [01]
        p connects
            p CONNACK 0x00
        p PUBLISH t 1 1 #1
            a PUBLISH t 1 1 #1
            p PUBACK #1
        b connects on 1
            b CONNACK 0x00
        b SUBSCRIBE #1 $share/g/t 1
            b SUBACK #1 [01]
        a is lost
            b PUBLISH t 1 1 #1
        ",
    );
}

#[test]
fn nobody_left_is_recorded_as_a_drop() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 $share/g/t 1
            a SUBACK #1 [01]
        p connects
            p CONNACK 0x00
        p PUBLISH t 1 1 #1
            a PUBLISH t 1 1 #1
            p PUBACK #1
        a is lost
            dropped: t no_group_member
        ",
    );
}

#[test]
fn a_durable_member_that_is_away_gets_its_messages_by_its_inbox() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a SUBSCRIBE #1 $share/g/t 1
            inbox of a: subscribe $share/g/t
            a SUBACK #1 [01]
        a is lost
            inbox of a: detach
            session of a: disconnect, expiry 3600, will: discard
        p connects
            p CONNACK 0x00
        p PUBLISH t 1 1 #1
            inbox of a: deliver t
            p PUBACK #1
        ",
    );
}

#[test]
fn a_member_without_room_is_passed_over() {
    check(
        "
        a connects inflight 1
            a CONNACK 0x00
        a SUBSCRIBE #1 $share/g/t 1
            a SUBACK #1 [01]
        b connects on 1
            b CONNACK 0x00
        b SUBSCRIBE #1 $share/g/t 1
            b SUBACK #1 [01]
        p connects
            p CONNACK 0x00
        p PUBLISH t 1 1 #1
            a PUBLISH t 1 1 #1
            p PUBACK #1
        p PUBLISH t 2 1 #2
            b PUBLISH t 2 1 #1
            p PUBACK #2
        p PUBLISH t 3 1 #3
            b PUBLISH t 3 1 #2
            p PUBACK #3
        p PUBLISH t 4 1 #4
            b PUBLISH t 4 1 #3
            p PUBACK #4
        ",
    );
}

#[test]
fn an_ordered_group_keeps_a_publishers_messages_with_one_member() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 $oshare/g/t 0
            a SUBACK #1 [00]
        b connects on 1
            b CONNACK 0x00
        b SUBSCRIBE #1 $oshare/g/t 0
            b SUBACK #1 [00]
        p connects
            p CONNACK 0x00
        p PUBLISH t 1 0
            a PUBLISH t 1 0
        p PUBLISH t 2 0
            a PUBLISH t 2 0
        p PUBLISH t 3 0
            a PUBLISH t 3 0
        ",
    );
}

#[test]
fn a_group_and_a_plain_subscription_each_get_the_message() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 $share/g/t 0 t 0
            a SUBACK #1 [00 00]
        p connects
            p CONNACK 0x00
        p PUBLISH t 1 0
            a PUBLISH t 1 0
            a PUBLISH t 1 0
        ",
    );
}

#[test]
fn a_durable_member_that_is_away_is_passed_over_while_another_is_there() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 $share/g/t 1
            a SUBACK #1 [01]
        d connects durable
            session of d: claim
            inbox of d: begin
            d CONNACK 0x00
        d SUBSCRIBE #1 $share/g/t 1
            inbox of d: subscribe $share/g/t
            d SUBACK #1 [01]
        d is lost
            inbox of d: detach
            session of d: disconnect, expiry 3600, will: discard
        p connects
            p CONNACK 0x00
        p PUBLISH t 1 1 #1
            a PUBLISH t 1 1 #1
            p PUBACK #1
        p PUBLISH t 2 1 #2
            a PUBLISH t 2 1 #2
            p PUBACK #2
        ",
    );
}

/// A queue of a session takes the messages of all groups.
fn check_many_groups(script: &str) {
    check_with(
        World::with(|settings| settings.limits.policy.queue_messages = 100_000),
        script,
    );
}

#[test]
fn an_acknowledgement_waits_for_groups_of_later_turns() {
    for other_loop in ["", " on 1"] {
        check_many_groups(&format!(
            "
        m connects{other_loop}
            m CONNACK 0x00
        m joins 5000 groups of t
            m SUBACK #1 [00 for each of 5000]
        p connects
            p CONNACK 0x00
        p PUBLISH t 1 1 #1
            m PUBLISH t 1 0, 2048 times
        a turn passes
            m PUBLISH t 1 0, 2048 times
        a turn passes
            m PUBLISH t 1 0, 904 times
            p PUBACK #1
        a turn passes
        p PUBLISH t 2 0
            m PUBLISH t 2 0, 2048 times
        "
        ));
    }
}

#[test]
fn a_publisher_that_is_not_held_back_publishes_behind_groups_of_later_turns() {
    check_many_groups(
        "
        m connects
            m CONNACK 0x00
        m joins 2100 groups of t
            m SUBACK #1 [00 for each of 2100]
        m SUBSCRIBE #2 $share/g/u 0 v 0
            m SUBACK #2 [00 00]
        p connects
            p CONNACK 0x00
        q connects
            q CONNACK 0x00
        p PUBLISH t 1 1 #1
            m PUBLISH t 1 0, 2048 times
        p PUBLISH u 2 1 #2
        p PUBLISH v 3 0
        q PUBLISH u other 1 #1
            m PUBLISH u other 0
            q PUBACK #1
        a turn passes
            m PUBLISH t 1 0, 52 times
            m PUBLISH u 2 0
            m PUBLISH v 3 0
            p PUBACK #1
            p PUBACK #2
        ",
    );
}

#[test]
fn a_publisher_of_many_groups_is_held_back_and_others_are_not() {
    check_many_groups(
        "
        m connects
            m CONNACK 0x00
        m joins 3000 groups of t
            m SUBACK #1 [00 for each of 3000]
        m SUBSCRIBE #2 $share/g/u 0
            m SUBACK #2 [00]
        p connects on 1
            p CONNACK 0x00
        q connects on 1
            q CONNACK 0x00
        p PUBLISH t 1 1 #1
            m PUBLISH t 1 0, 2048 times
        p PUBLISH u 2 1 #2
        p PINGREQ
            p PINGRESP
        q PUBLISH u other 1 #1
            m PUBLISH u other 0
            q PUBACK #1
        a turn passes
            m PUBLISH t 1 0, 952 times
            m PUBLISH u 2 0
            p PUBACK #1
            p PUBACK #2
        ",
    );
}

#[test]
fn groups_of_later_turns_get_a_message_by_who_is_a_member_then() {
    check_many_groups(
        "
        m connects
            m CONNACK 0x00
        m joins 3000 groups of t
            m SUBACK #1 [00 for each of 3000]
        p connects
            p CONNACK 0x00
        p PUBLISH t 1 1 #1
            m PUBLISH t 1 0, 2048 times
        n connects on 1
            n CONNACK 0x00
        n joins 3000 groups of t
            n SUBACK #1 [00 for each of 3000]
        m leaves 3000 groups of t
            m UNSUBACK #2 [00 for each of 3000]
        p is lost
        a turn passes
            n PUBLISH t 1 0, 952 times
        ",
    );
}

#[test]
fn groups_of_later_turns_may_get_a_message_by_the_inboxes_of_members() {
    check_many_groups(
        "
        m connects durable
            session of m: claim
            inbox of m: begin
            m CONNACK 0x00
        m joins 2100 groups of t
            inbox of m: subscribe to 256 filters
            inbox of m: subscribe to 256 filters
            inbox of m: subscribe to 256 filters
            inbox of m: subscribe to 256 filters
            inbox of m: subscribe to 256 filters
            inbox of m: subscribe to 256 filters
            inbox of m: subscribe to 256 filters
            inbox of m: subscribe to 256 filters
            inbox of m: subscribe to 52 filters
            m SUBACK #1 [00 for each of 2100]
        p connects
            p CONNACK 0x00
        the store waits
        p PUBLISH t 1 1 #1
            inbox of m: deliver t, 2048 times
        the store answers
        the store waits
        a turn passes
            inbox of m: deliver t, 52 times
        the store answers
            p PUBACK #1
        ",
    );
}

#[test]
fn an_acknowledgement_waits_for_later_turns_and_then_for_unknown_members() {
    check_many_groups(
        "
        m connects
            m CONNACK 0x00
        m joins 3000 groups of t
            m SUBACK #1 [00 for each of 3000]
        p connects
            p CONNACK 0x00
        a shard is unknown
        p PUBLISH t 1 1 #1
            inboxes: publish t
            m PUBLISH t 1 0, 2048 times
        a turn passes
            m PUBLISH t 1 0, 952 times
        after 5 ms
        all shards are known
        after 5 ms
            p PUBACK #1
        ",
    );
}

#[test]
fn a_group_whose_members_become_unknown_before_its_turn_gets_the_message_when_they_are_known() {
    check_many_groups(
        "
        m connects
            m CONNACK 0x00
        m joins 3000 groups of t
            m SUBACK #1 [00 for each of 3000]
        p connects
            p CONNACK 0x00
        p PUBLISH t 1 1 #1
            m PUBLISH t 1 0, 2048 times
        a shard is unknown
        m is lost
        a turn passes
        n connects
            n CONNACK 0x00
        n joins 3000 groups of t
            n SUBACK #1 [00 for each of 3000]
        all shards are known
        after 5 ms
            n PUBLISH t 1 0, 952 times
            p PUBACK #1
        ",
    );
}

#[test]
fn messages_for_unknown_members_keep_their_order_over_later_turns() {
    check_many_groups(
        "
        m connects
            m CONNACK 0x00
        m joins 2100 groups of t
            m SUBACK #1 [00 for each of 2100]
        p connects
            p CONNACK 0x00
        a shard is unknown
        m is lost
        p PUBLISH t 1 1 #1
            inboxes: publish t
        p PUBLISH t 2 1 #2
            inboxes: publish t
        n connects
            n CONNACK 0x00
        n joins 2100 groups of t
            n SUBACK #1 [00 for each of 2100]
        a turn passes
        all shards are known
        after 5 ms
            n PUBLISH t 1 0, 2100 times
            n PUBLISH t 2 0, 2100 times
            p PUBACK #1
            p PUBACK #2
        ",
    );
}

#[test]
fn many_groups_get_what_a_node_publishes_that_does_not_know_them() {
    check_many_groups(
        "
        m connects
            m CONNACK 0x00
        m joins 3000 groups of t
            m SUBACK #1 [00 for each of 3000]
        a node tells of d in $share/known/t
        a node publishes t 1 but to $share/7/t $share/2999/t $share/none/t
            m PUBLISH t 1 0, 2047 times
        a turn passes
            m PUBLISH t 1 0, 951 times
        ",
    );
}

#[test]
fn a_message_without_groups_waits_for_unknown_members_behind_one_with_many() {
    check_many_groups(
        "
        m connects
            m CONNACK 0x00
        m joins 2100 groups of t
            m SUBACK #1 [00 for each of 2100]
        p connects
            p CONNACK 0x00
        a shard is unknown
        m is lost
        p PUBLISH t 1 1 #1
            inboxes: publish t
        p PUBLISH u 2 1 #2
            inboxes: publish u
        n connects
            n CONNACK 0x00
        n joins 2100 groups of t
            n SUBACK #1 [00 for each of 2100]
        n SUBSCRIBE #2 $share/g/u 0
            n SUBACK #2 [00]
        a turn passes
        all shards are known
        after 5 ms
            n PUBLISH t 1 0, 2100 times
            n PUBLISH u 2 0
            p PUBACK #1
            p PUBACK #2
        ",
    );
}

#[test]
fn a_group_without_known_members_goes_when_all_shards_are_known() {
    check(
        "
        m connects
            m CONNACK 0x00
        m SUBSCRIBE #1 $share/g/t 0 $share/h/t 0
            m SUBACK #1 [00 00]
        p connects
            p CONNACK 0x00
        a shard is unknown
        m is lost
        n connects
            n CONNACK 0x00
        n SUBSCRIBE #1 $share/h/t 0
            n SUBACK #1 [00]
        all shards are known
        p PUBLISH t 1 1 #1
            n PUBLISH t 1 0
            p PUBACK #1
        n is lost
        p PUBLISH t 2 1 #2
            p PUBACK #2 0x10
        ",
    );
}

/// Two durable members of a group, and a publisher with a session.
const MEMBERS: &str = "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a SUBSCRIBE #1 $share/g/t 2
            inbox of a: subscribe $share/g/t
            a SUBACK #1 [02]
        p connects durable
            session of p: claim
            inbox of p: begin
            p CONNACK 0x00
        ";

#[test]
fn a_message_of_qos_2_is_known_at_another_member_when_the_session_of_the_first_has_ended() {
    check(&format!(
        "{MEMBERS}
        b connects durable
            session of b: claim
            inbox of b: begin
            b CONNACK 0x00
        b SUBSCRIBE #1 $share/g/t 2
            inbox of b: subscribe $share/g/t
            b SUBACK #1 [02]
        the store ends a session
        p PUBLISH t 1 2 #4
            inboxes: publish t #4
            inbox of a: deliver t #4
            inbox of b: deliver t #4
            p PUBREC #4
        "
    ));
}

#[test]
fn a_message_of_qos_2_that_waited_for_another_member_is_known_there() {
    check(&format!(
        "{MEMBERS}
        the store ends a session
        the store waits
        p PUBLISH t 1 2 #4
            inboxes: publish t #4
            inbox of a: deliver t #4
        a UNSUBSCRIBE #2 $share/g/t
            inbox of a: unsubscribe $share/g/t
        a shard is unknown
        the store answers
            a UNSUBACK #2 [00]
        a node tells of b in $share/g/t
        all shards are known
        after 5 ms
            inbox of b: deliver t #4
            p PUBREC #4
        "
    ));
}
