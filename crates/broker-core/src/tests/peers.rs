//! A node of a cluster: clients that were on other nodes, messages to and from them, and routes that all have to know.

use super::{World, check_with};

/// Node 1, with nodes 7 and 8.
#[track_caller]
fn check(script: &str) {
    check_with(World::in_cluster(&[7, 8]), script);
}

#[test]
fn the_directory_says_which_node_is_to_close_the_older_connection() {
    check(
        "
        node 7 leads the sessions
        a connects
            to node 7: who has a?
        node 7 answers that node 8 has it
            to node 8: close older of a, number 1000000000
        node 8 answers
            a CONNACK 0x00
        ",
    );
}

#[test]
fn a_bridges_notification_is_no_will_in_a_cluster_either() {
    check(
        "
        b connects bridge durable will $SYS/broker/connection/edge/state 0
            session of b: claim
            inbox of b: begin
            b CONNACK 0x00
            dropped: $SYS/broker/connection/edge/state bridge_notification
        ",
    );
}

#[test]
fn a_later_connection_on_another_node_closes_the_one_here_by_its_number() {
    check(
        "
        a connects
            a CONNACK 0x00
        node 7 registers a
            to node 7: node 1 has it, number 1000000001
        node 7 asks to close a number 1000000001
        after 1 ms
            to node 7: closed
            a DISCONNECT 0x8e
            a is closed
        node 8 asks to close b number 1000000001
            to node 8: closed
        ",
    );
}

#[test]
fn an_older_connection_on_another_node_closes_nothing() {
    check(
        "
        a connects
            a CONNACK 0x00
        node 7 asks to close a number 5
            to node 7: closed
        ",
    );
}

#[test]
fn without_a_leader_clients_are_let_in_at_once() {
    check(
        "
        nobody leads the sessions
        a connects
            a CONNACK 0x00
        ",
    );
}

#[test]
fn a_leader_that_does_not_answer_is_not_waited_for_for_long() {
    check(
        "
        node 7 leads the sessions
        a connects
            to node 7: who has a?
        after 1000 ms
            to node 7: a is here
            a CONNACK 0x00
        node 7 answers that node 8 has it
        ",
    );
}

#[test]
fn a_leader_that_is_cut_is_not_waited_for() {
    check(
        "
        node 7 leads the sessions
        a connects
            to node 7: who has a?
        node 7 is cut
            a CONNACK 0x00
        b connects
            b CONNACK 0x00
        ",
    );
}

#[test]
fn a_new_leader_is_told_of_the_clients_here() {
    check(
        "
        a connects
            a CONNACK 0x00
        node 7 leads the sessions
        after 250 ms
            to node 7: a is here
        a DISCONNECT
            to node 7: a is gone
            a is closed
        ",
    );
}

#[test]
fn the_store_says_which_node_is_to_close_the_older_connection() {
    check(
        "
        the store resumes
        the store takes it from node 7
        a connects resume
            session of a: claim
            to node 7: close older of a, epoch 1, resumes
        a PUBLISH t x 0
        node 7 answers
            inbox of a: resume
            a CONNACK 0x00 present
        ",
    );
}

#[test]
fn if_the_store_does_not_know_who_had_the_client_all_are_asked() {
    check(
        "
        the store takes it from anybody
        a connects durable
            session of a: claim
            to node 7: close older of a, epoch 1
            to node 8: close older of a, epoch 1
        node 7 answers
        node 8 answers
            session of a: will due 0
            inbox of a: begin
            a CONNACK 0x00
        ",
    );
}

#[test]
fn a_client_is_back_when_the_will_of_its_older_connection_is_published() {
    check(
        "
        the store takes it from node 7 with will 3
        a connects durable
            session of a: claim
            to node 7: close older of a, epoch 1
        the store waits
        node 7 answers
            session of a: will due 3
        after 4000 ms
        the store answers
            inbox of a: begin
            a CONNACK 0x00
        ",
    );
}

#[test]
fn of_a_node_that_is_down_the_will_is_due_at_once() {
    check(
        "
        the store takes it from node 7 with will 3
        a connects durable
            session of a: claim
            to node 7: close older of a, epoch 1
        node 7 is down
            session of a: will due 3
            inbox of a: begin
            a CONNACK 0x00
        ",
    );
}

#[test]
fn a_client_is_not_let_in_before_the_will_of_its_older_connection() {
    check(
        "
        the store takes it from node 7 with will 3
        a connects durable
            session of a: claim
            to node 7: close older of a, epoch 1
        the store waits
        node 7 answers
            session of a: will due 3
        after 5000 ms
            session of a: disconnect, expiry 3600, will: discard
            a CONNACK 0x88
            a is closed
        ",
    );
}

#[test]
fn a_later_connection_on_another_node_closes_the_one_here_by_its_epoch() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        node 7 asks to close a epoch 1 resumes
            to node 7: closed
        node 7 asks to close a epoch 2 resumes
        after 1 ms
            inbox of a: detach
            session of a: disconnect, expiry 3600, will: discard
            inboxes: barrier
            session a: barrier
            to node 7: closed
            a DISCONNECT 0x8e
            a is closed
        ",
    );
}

#[test]
fn who_takes_a_client_over_is_told_what_is_not_released() {
    check(
        "
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a PUBLISH t x 2 #5
            inboxes: publish t #5
            a PUBREC #5
        node 7 asks to close a epoch 2 resumes
        after 1 ms
            inbox of a: detach
            session of a: disconnect, expiry 3600, will: discard
            inboxes: barrier
            session a: barrier
            to node 7: closed, unreleased [5]
            a DISCONNECT 0x8e
            a is closed
        ",
    );
}

#[test]
fn what_is_not_released_elsewhere_is_not_published_again() {
    check(
        "
        b connects
            b CONNACK 0x00
        b SUBSCRIBE #1 t 0
            to node 7: routes +t
            to node 8: routes +t
            b SUBACK #1 [00]
        the store resumes
        the store takes it from node 7
        a connects resume
            session of a: claim
            to node 7: close older of a, epoch 1, resumes
        node 7 answers unreleased 5
            inbox of a: resume
            to node 7: close older of a, epoch 1
            a CONNACK 0x00 present
        a PUBLISH t x 2 #5 dup
            inboxes: publish t #5
            a PUBREC #5
        a PUBLISH t y 2 #6
            inboxes: publish t #6
            a PUBREC #6
            b PUBLISH t y 0
        ",
    );
}

#[test]
fn a_claim_that_is_not_answered_is_judged_when_it_is() {
    check(
        "
        the store waits
        a connects durable
            session of a: claim
        node 7 asks to close a epoch 2
        the store answers
            inbox of a: begin
            session a: barrier
            session of a: disconnect, expiry 3600, will: discard
            inbox of a: detach
            to node 7: closed
            a is closed
        after 1 ms
        ",
    );
}

#[test]
fn a_connection_that_is_taken_over_is_said_to_be_closed_when_its_claim_is_answered() {
    check(
        "
        the store waits
        a connects durable
            session of a: claim
        node 7 asks to close a number 1000000001
            a is closed
        the store answers
            session of a: disconnect, expiry 3600, will: discard
            to node 7: closed
        after 1 ms
        ",
    );
}

#[test]
fn a_claim_that_turns_out_to_be_the_later_one_stays() {
    check(
        "
        the store waits
        a connects durable
            session of a: claim
        node 7 asks to close a epoch 1
        the store answers
            inbox of a: begin
            to node 7: closed
            a CONNACK 0x00
        after 1 ms
        ",
    );
}

#[test]
fn a_node_that_is_asked_to_close_a_connection_and_does_not_is_waited_for_five_seconds() {
    check(
        "
        the store takes it from node 7
        a connects durable
            session of a: claim
            to node 7: close older of a, epoch 1
        after 4999 ms
        after 1 ms
            session of a: disconnect, expiry 3600, will: discard
            a CONNACK 0x88
            a is closed
        node 7 answers
        ",
    );
}

#[test]
fn a_node_that_goes_down_is_waited_for_no_longer_but_asked_when_it_is_back() {
    check(
        "
        the store takes it from node 7
        a connects durable
            session of a: claim
            to node 7: close older of a, epoch 1
        node 7 is down
            inbox of a: begin
            a CONNACK 0x00
        node 7 is up
        node 7 is linked
            to node 7: routes +shard:0
            to node 7: close older of a, epoch 1
            to node 7: close older of a, epoch 1
        node 7 answers
        node 7 is linked
            to node 7: routes +shard:0
        ",
    );
}

#[test]
fn nothing_is_asked_of_a_process_that_has_ended() {
    check(
        "
        the store takes it from node 7
        a connects durable
            session of a: claim
            to node 7: close older of a, epoch 1
        node 7 restarts
            inbox of a: begin
            a CONNACK 0x00
        node 7 is linked
            to node 7: routes +shard:0
        ",
    );
}

#[test]
fn an_answer_that_was_lost_is_asked_for_again() {
    check(
        "
        the store takes it from node 7
        a connects durable
            session of a: claim
            to node 7: close older of a, epoch 1
        node 7 is cut
        node 7 is linked
            to node 7: routes +shard:0
            to node 7: close older of a, epoch 1
            to node 7: close older of a, epoch 1
        node 7 answers
            inbox of a: begin
            a CONNACK 0x00
        ",
    );
}

#[test]
fn a_publication_goes_to_the_nodes_that_subscribe() {
    check(
        "
        node 7 subscribes t
        p connects
            p CONNACK 0x00
        p PUBLISH t x 1 #1
            to node 7: t x 1 for sessions
            p PUBACK #1
        p PUBLISH u y 1 #2
            p PUBACK #2 0x10
        ",
    );
}

#[test]
fn a_publication_of_another_node_reaches_the_sessions_here() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            to node 7: routes +t
            to node 8: routes +t
            a SUBACK #1 [01]
        b connects on 1
            b CONNACK 0x00
        b SUBSCRIBE #1 t 0
            b SUBACK #1 [00]
        node 7 publishes t x 1
            a PUBLISH t x 1 #1
            b PUBLISH t x 0
        a PUBACK #1
        ",
    );
}

#[test]
fn a_member_on_another_node_is_kept_a_copy_for_until_it_has_acknowledged() {
    check(
        "
        node 7 subscribes $share/g/t
        p connects
            p CONNACK 0x00
        p PUBLISH t x 1 #1
            to node 7: t x 1 for $share/g/t, copy 1
            p PUBACK #1
        p PUBLISH t y 1 #2
            to node 7: t y 1 for $share/g/t, copy 2
            p PUBACK #2
        node 7 has settled 1
        node 7 is cut
        node 7 is linked
            to node 7: routes +shard:0
            to node 7: t y 1 for $share/g/t, copy 2
        node 7 has settled 2
        node 7 is linked
            to node 7: routes +shard:0
        ",
    );
}

#[test]
fn what_a_node_that_is_gone_did_not_give_to_its_member_goes_to_another() {
    check(
        "
        node 7 subscribes $share/g/t
        p connects
            p CONNACK 0x00
        p PUBLISH t x 1 #1
            to node 7: t x 1 for $share/g/t, copy 1
            p PUBACK #1
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 $share/g/t 1
            to node 7: routes +$share/g/t
            to node 8: routes +$share/g/t
            a SUBACK #1 [01]
        node 7 is evicted
            a PUBLISH t x 1 #1
        a PUBACK #1
        ",
    );
}

#[test]
fn another_node_hears_when_a_member_here_has_acknowledged() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 $share/g/t 1
            to node 7: routes +$share/g/t
            to node 8: routes +$share/g/t
            a SUBACK #1 [01]
        node 7 publishes t x 1 to $share/g/t
            a PUBLISH t x 1 #1
        after 250 ms
        a PUBACK #1
        after 250 ms
            to node 7: done with copies [1]
        ",
    );
}

#[test]
fn a_message_for_a_member_that_is_sent_again_comes_once() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 $share/g/t 1
            to node 7: routes +$share/g/t
            to node 8: routes +$share/g/t
            a SUBACK #1 [01]
        node 7 publishes t x 1 to $share/g/t
            a PUBLISH t x 1 #1
        node 7 sends that again
        ",
    );
}

#[test]
fn a_publisher_is_not_read_while_a_subscriber_of_another_node_holds_it() {
    check(
        "
        p connects
            p CONNACK 0x00
        node 7 subscribes t
        node 7 holds p
        p PUBLISH t x 1 #1
        node 8 holds p
        node 7 releases p
        node 8 releases p
            to node 7: t x 1 for sessions
            p PUBACK #1
        ",
    );
}

#[test]
fn a_hold_ends_with_the_connection_of_its_node() {
    check(
        "
        p connects
            p CONNACK 0x00
        node 7 holds p
        p PUBLISH t x 1 #1
        node 7 is cut
            p PUBACK #1 0x10
        ",
    );
}

#[test]
fn publishers_to_a_node_that_too_much_is_on_its_way_to_wait() {
    check(
        "
        node 7 subscribes t
        p connects
            p CONNACK 0x00
        node 7 is over its limit
        p PUBLISH t x 1 #1
            to node 7: t x 1 for sessions
            p PUBACK #1
        p PUBLISH t y 1 #2
            to node 7: t y 1 for sessions
            p PUBACK #2
        p PUBLISH t z 1 #3
        node 7 has room
        after 100 ms
            to node 7: t z 1 for sessions
            p PUBACK #3
        ",
    );
}

#[test]
fn a_message_for_a_node_that_is_not_reached_is_dropped_with_a_record() {
    check(
        "
        node 7 subscribes t
        p connects
            p CONNACK 0x00
        node 7 does not take anything
        p PUBLISH t x 0
            dropped: t peer_unreachable
        ",
    );
}

#[test]
fn a_node_that_is_cut_gets_what_it_subscribes_to_no_more() {
    check(
        "
        node 7 subscribes t
        p connects
            p CONNACK 0x00
        node 7 is cut
        p PUBLISH t x 1 #1
            p PUBACK #1
            dropped: t peer_unreachable
        node 7 is linked
            to node 7: routes +shard:0
        p PUBLISH t y 1 #2
            to node 7: t y 1 for sessions
            p PUBACK #2
        ",
    );
}

#[test]
fn suback_waits_until_all_nodes_know_the_route() {
    check(
        "
        a connects
            a CONNACK 0x00
        node 7 stands still
        a SUBSCRIBE #1 t 0
            to node 7: routes +t
            to node 8: routes +t
        node 7 goes on
            a SUBACK #1 [00]
        ",
    );
}

#[test]
fn suback_waits_for_a_node_that_does_not_answer_until_that_believes_nothing() {
    check(
        "
        a connects
            a CONNACK 0x00
        node 7 stands still
        a SUBSCRIBE #1 t 0
            to node 7: routes +t
            to node 8: routes +t
        after 2999 ms
        after 1 ms
            a SUBACK #1 [00]
        ",
    );
}

#[test]
fn a_node_that_is_evicted_is_not_waited_for() {
    check(
        "
        a connects
            a CONNACK 0x00
        node 7 stands still
        a SUBSCRIBE #1 t 0
            to node 7: routes +t
            to node 8: routes +t
        node 7 is evicted
            a SUBACK #1 [00]
        ",
    );
}

#[test]
fn the_leader_of_an_inbox_shard_says_when_all_know_its_routes() {
    check(
        "
        node 7 leads the inboxes
            to node 7: routes -shard:0
            to node 8: routes -shard:0
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            inbox of a: subscribe t
            to node 7: when do all know inbox shard 0?
            to node 7: routes +t
            to node 8: routes +t
        node 7 answers
            a SUBACK #1 [01]
        ",
    );
}

#[test]
fn the_leader_of_an_inbox_shard_is_asked_again() {
    check(
        "
        node 7 leads the inboxes
            to node 7: routes -shard:0
            to node 8: routes -shard:0
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            inbox of a: subscribe t
            to node 7: when do all know inbox shard 0?
            to node 7: routes +t
            to node 8: routes +t
        after 500 ms
            to node 7: when do all know inbox shard 0?
        node 7 answers
            a SUBACK #1 [01]
        ",
    );
}

#[test]
fn this_node_says_when_all_know_the_routes_of_its_shard() {
    check(
        "
        node 7 asks when shard 0 is known
            to node 7: all know it
        node 8 stands still
        a connects durable
            session of a: claim
            inbox of a: begin
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            inbox of a: subscribe t
            to node 7: routes +shard:0:t +t
            to node 8: routes +shard:0:t +t
        node 7 asks when shard 0 is known
        node 8 goes on
            to node 7: all know it
            a SUBACK #1 [01]
        ",
    );
}

#[test]
fn a_node_whose_routes_are_not_believed_gets_everything() {
    check(
        "
        p connects
            p CONNACK 0x00
        node 7 stands still
        after 2000 ms
        p PUBLISH t x 1 #1
            to node 7: t x 1 for anybody
            p PUBACK #1
        node 7 goes on
        after 500 ms
        p PUBLISH t y 1 #2
            p PUBACK #2 0x10
        ",
    );
}

#[test]
fn a_node_that_was_evicted_is_forgotten() {
    check(
        "
        node 7 subscribes t
        node 7 subscribes $share/g/u
        node 7 is evicted
        p connects
            p CONNACK 0x00
        p PUBLISH t x 1 #1
            p PUBACK #1 0x10
        p PUBLISH u y 1 #2
            p PUBACK #2 0x10
        ",
    );
}

#[test]
fn after_a_standstill_nothing_is_routed_by_old_routes() {
    check(
        "
        p connects
            p CONNACK 0x00
        the process is stopped for 1499 ms
        p PUBLISH t x 1 #1
            p PUBACK #1 0x10
        the process is stopped for 1 ms
        p PUBLISH t y 1 #2
            to node 7: t y 1 for anybody
            to node 8: t y 1 for anybody
            p PUBACK #2
        ",
    );
}

#[test]
fn without_a_majority_messages_go_by_what_the_last_leaders_had_told() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            to node 7: routes +t
            to node 8: routes +t
            a SUBACK #1 [01]
        p connects
            p CONNACK 0x00
        d connects durable
            session of d: claim
            inbox of d: begin
            d CONNACK 0x00
        d SUBSCRIBE #1 durable 1
            inbox of d: subscribe durable
            to node 7: routes +shard:0:durable +durable
            to node 8: routes +shard:0:durable +durable
            d SUBACK #1 [01]
        nobody leads the inboxes
            to node 7: routes -shard:0
            to node 8: routes -shard:0
        node 7 stands still
        node 8 stands still
        p PUBLISH t 1 1 #1
            inboxes: publish t
            a PUBLISH t 1 1 #1
        after 3000 ms
        p PUBLISH t 2 1 #2
            inboxes: publish t
            to node 7: t 2 1 for sessions
            to node 8: t 2 1 for sessions
            a PUBLISH t 2 1 #2
        after 2000 ms
            p PUBACK #1
            p PUBACK #2
        p PUBLISH t 3 1 #3
            to node 7: t 3 1 for anybody
            to node 8: t 3 1 for anybody
            a PUBLISH t 3 1 #3
            p PUBACK #3
        p PUBLISH durable 4 1 #4
            inboxes: publish durable
            to node 7: durable 4 1 for anybody
            to node 8: durable 4 1 for anybody
            p PUBACK #4
        node 7 goes on
        node 7 leads the inboxes
        after 500 ms
        p PUBLISH durable 5 1 #5
            to node 8: durable 5 1 for anybody
            p PUBACK #5
        ",
    );
}

#[test]
fn a_subscriber_that_does_not_keep_up_holds_back_a_publisher_of_another_node() {
    let world = World::among(&[7, 8], |settings| {
        settings.limits.policy.queue_messages = 2
    });
    check_with(
        world,
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 1
            to node 7: routes +t
            to node 8: routes +t
            a SUBACK #1 [01]
        a stops reading
        node 7 publishes t 1 1
        node 7 publishes t 2 1
        node 7 publishes t 3 1
            to node 7: hold publisher 5 of loop 0
        a reads
            to node 7: release publisher 5 of loop 0
            a PUBLISH t 1 1 #1
            a PUBLISH t 2 1 #2
            a PUBLISH t 3 1 #3
        ",
    );
}

#[test]
fn a_retained_message_of_an_earlier_connection_is_not_kept() {
    check(
        "
        p connects
            p CONNACK 0x00
        p PUBLISH t x 1 #1 retain
            retained: keep t, after what p sent
            p PUBACK #1 0x10
        the store knows a later connection
        p PUBLISH t y 1 #2 retain
            retained: keep t, after what p sent
            p DISCONNECT 0x8e
            p is closed
            dropped: t store_failed
        ",
    );
}

#[test]
fn a_connect_that_a_later_one_takes_over_is_refused_in_a_cluster() {
    check(
        "
        the store waits
        a connects durable
            session of a: claim
        after 1 ms
        a connects durable
        after 1 ms
        a connects durable
            a CONNACK 0x88
            a is closed
        ",
    );
}
