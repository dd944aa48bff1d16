//! A publication and the end of a session are applied in parts, and nothing shows where these end. The property test says the
//! same of all limits, checkpoints and crashes.

use super::*;
use crate::inbox::{ending, publishing::AT_ONCE};

/// A shard with a session for each of these names, none of which is connected.
fn sleepers(clients: &[&str]) -> (Shard, Vec<u64>) {
    let mut shard = Shard::new();
    let inboxes = clients.iter().map(|client| shard.sleeper(client, "news"));
    let inboxes = inboxes.collect();
    shard.take_events();
    (shard, inboxes)
}

const FIVE: [&str; 5] = ["ann", "bob", "cyd", "dan", "eve"];

impl Shard {
    fn part(&mut self, op: &InboxOp) -> Option<InboxReply> {
        let mut recorder = Recorder::default();
        let reply = self
            .machine
            .apply_part(&self.header, op, &self.table, &mut recorder)
            .unwrap();
        self.events.extend(recorder.0);
        reply
    }

    /// Messages queued in each of these.
    fn lens(&self, inboxes: &[u64]) -> Vec<u32> {
        let lens = inboxes.iter().map(|&inbox| self.machine.queue_len(inbox));
        lens.collect()
    }
}

#[test]
fn a_message_for_many_sessions_is_queued_part_by_part() {
    let (mut shard, inboxes) = sleepers(&FIVE);
    let op = publish(message("news", "1", QoS::AtLeastOnce), None);
    for queued in (AT_ONCE..FIVE.len()).step_by(AT_ONCE) {
        assert_eq!(shard.part(&op), None);
        let expected = (0..FIVE.len()).map(|n| u32::from(n < queued));
        assert_eq!(shard.lens(&inboxes), expected.collect::<Vec<_>>());
        for &inbox in inboxes.iter().take(queued) {
            assert_eq!(shard.queue(inbox), payloads(&[(1, "1")]));
        }
    }
    assert_eq!(shard.part(&op), Some(published(5, 0)));
    assert_eq!(shard.lens(&inboxes), [1; 5]);
    shard.checkpoint();
    let kinds = [b'Q', b'B', b'C'].map(|kind| shard.table.rows_of(kind));
    assert_eq!(kinds, [5, 1, 1]);
    for client in FIVE {
        shard.acknowledge(client, 1, 1, &[1]);
    }
    shard.checkpoint();
    let kinds = [b'Q', b'B', b'C'].map(|kind| shard.table.rows_of(kind));
    assert_eq!(kinds, [0; 3], "the body went with its last reference");
}

#[test]
fn a_message_that_one_session_queued_in_an_earlier_part_is_its_own() {
    let (mut shard, inboxes) = sleepers(&FIVE);
    shard.header.limits.queue.full = QueueFull::DropNewest;
    shard.publish("news", "1", QoS::AtLeastOnce);
    shard.acknowledge("ann", 1, 1, &[1]);
    shard.header.limits.queue.messages = 1;
    assert_eq!(
        shard.publish("news", "2", QoS::AtLeastOnce),
        published(5, 0)
    );
    assert_eq!(shard.queue(inboxes[0]), payloads(&[(2, "2")]));
    shard.checkpoint();
    // The second message stands with the queue that has it.
    let kinds = [b'Q', b'B'].map(|kind| shard.table.rows_of(kind));
    assert_eq!(kinds, [5, 1]);
    shard.restart();
    assert_eq!(shard.queue(inboxes[0]), payloads(&[(2, "2")]));
}

#[test]
fn a_checkpoint_under_way_has_nothing_of_the_publication() {
    let (mut shard, inboxes) = sleepers(&FIVE);
    shard.publish("news", "1", QoS::AtLeastOnce);
    let mut changes = Changes::default();
    assert!(!shard.machine.collect_part(1, &mut changes));
    let op = publish(message("news", "2", QoS::AtLeastOnce), None);
    while shard.part(&op).is_none() {
        shard.machine.collect_part(1, &mut changes);
    }
    while !shard.machine.collect_part(1, &mut changes) {}
    shard.table.write(&changes);
    let mut before = InboxMachine::load(Slots::ALL, &shard.table).unwrap();
    for &inbox in &inboxes {
        let mut page = Vec::new();
        before
            .page(inbox, 1, 10, 1 << 20, &shard.table, &mut page)
            .unwrap();
        assert_eq!(page.len(), 1);
    }
    // The tables have the first; memory lets go of it between parts of a third.
    let op = publish(message("news", "3", QoS::AtLeastOnce), None);
    while shard.part(&op).is_none() {
        shard.machine.saved_part(1);
        assert_eq!(shard.queue(inboxes[0]).len(), 3);
    }
    while !shard.machine.saved_part(1) {}
    shard.checkpoint();
    shard.restart();
    for inbox in inboxes {
        let all = payloads(&[(1, "1"), (2, "2"), (3, "3")]);
        assert_eq!(shard.queue(inbox), all);
    }
}

#[test]
fn a_publication_that_came_before_is_answered_in_its_first_part() {
    let (mut shard, inboxes) = sleepers(&FIVE);
    let origin = Origin {
        client: "pub".into(),
        incarnation: 1,
        packet_id: 7,
    };
    shard.header.limits.queue.messages = 1;
    shard.header.limits.queue.full = QueueFull::REFUSE;
    shard.publish("news", "1", QoS::AtLeastOnce);
    shard.acknowledge("eve", 1, 1, &[1]);
    let op = publish(message("news", "2", QoS::ExactlyOnce), Some(origin));
    assert_eq!(shard.apply(&op), published(5, 4));
    assert_eq!(shard.part(&op), Some(published(1, 1)));
    assert_eq!(shard.lens(&inboxes), [1; 5]);
}

const GROUP: &str = "$share/g/news";

/// A session that is away, with five messages of its own and one that is its group's, and what removes it; its inbox.
fn laden() -> (Shard, u64, InboxOp) {
    let mut shard = Shard::new();
    let inbox = shard.sleeper("ann", "news");
    for payload in ["1", "2", "3", "4"] {
        shard.publish("news", payload, QoS::AtLeastOnce);
    }
    shard.apply(&InboxOp::Deliver {
        session: "ann".into(),
        items: vec![item("news", "5", QoS::AtLeastOnce, Some(GROUP))],
        origin: None,
    });
    shard.publish("news", "6", QoS::AtLeastOnce);
    shard.take_events();
    let remove = InboxOp::Remove {
        session: "ann".into(),
        epoch: 1,
    };
    (shard, inbox, remove)
}

fn dropped(payloads: &[&str]) -> Vec<(String, String, DropReason)> {
    let drop = |payload: &&str| {
        (
            "ann".to_owned(),
            (*payload).to_owned(),
            DropReason::SessionEnded,
        )
    };
    payloads.iter().map(drop).collect()
}

#[test]
fn a_session_with_a_long_queue_ends_part_by_part() {
    assert_eq!(ending::AT_ONCE, 2, "as the parts below");
    let (mut shard, inbox, remove) = laden();
    for payloads in [["1", "2"], ["3", "4"]] {
        assert_eq!(shard.part(&remove), None);
        assert_eq!(shard.machine.next_sequence(inbox), None, "it is gone");
        assert_eq!(shard.drops(), dropped(&payloads));
        assert_eq!(told_of_legacies(&shard), []);
    }
    assert_eq!(shard.part(&remove), Some(InboxReply::Done));
    let left = Event::LeftBehind("ann".into(), inbox);
    assert_eq!(told_of_legacies(&shard), [left]);
    assert_eq!(shard.drops(), dropped(&["6"]));
    let (messages, legacies) = (shard.machine.counts().messages, 1);
    assert_eq!(shard.machine.counts().legacies, legacies);
    assert_eq!(messages, 1);
    assert_eq!(shard.apply(&remove), InboxReply::Stale);
}

fn told_of_legacies(shard: &Shard) -> Vec<Event> {
    let mut recorder = Recorder::default();
    shard.machine.for_each_legacy(&mut recorder);
    recorder.0
}

#[test]
fn a_new_session_begins_when_the_one_before_has_ended() {
    let (mut shard, inbox, _) = laden();
    let anew = InboxOp::Attach {
        client: "ann".into(),
        epoch: 2,
        node: 1,
        node_incarnation: 1,
        resume: false,
    };
    for _ in 0..2 {
        assert_eq!(shard.part(&anew), None);
        let counts = shard.machine.counts();
        assert_eq!((counts.inboxes, counts.attached), (0, 0));
    }
    let Some(InboxReply::Attached(attached)) = shard.part(&anew) else {
        panic!("it is attached");
    };
    assert!(!attached.present && attached.inbox > inbox);
    assert_eq!(shard.drops(), dropped(&["1", "2", "3", "4", "6"]));
    assert_eq!(shard.machine.counts().messages, 1, "that of the group");
    shard.checkpoint();
    let kinds = [b'I', b'L', b'Q'].map(|kind| shard.table.rows_of(kind));
    assert_eq!(kinds, [1, 1, 1]);
}

#[test]
fn a_checkpoint_under_way_has_the_session_that_ends_as_it_was() {
    for is_first_in_tables in [false, true] {
        let (mut shard, inbox, remove) = laden();
        if is_first_in_tables {
            shard.checkpoint();
            shard.publish("news", "7", QoS::AtLeastOnce);
        }
        let all = shard.queue(inbox);
        let mut changes = Changes::default();
        shard.sleeper("bob", "other");
        assert!(!shard.machine.collect_part(1, &mut changes));
        let mut is_all = false;
        while shard.part(&remove).is_none() {
            is_all = is_all || shard.machine.collect_part(1, &mut changes);
        }
        while !is_all {
            is_all = shard.machine.collect_part(1, &mut changes);
        }
        shard.table.write(&changes);
        let mut before = InboxMachine::load(Slots::ALL, &shard.table).unwrap();
        let mut page = Vec::new();
        before
            .page(inbox, 1, 10, 1 << 20, &shard.table, &mut page)
            .unwrap();
        assert_eq!(page.len(), all.len());
        while !shard.machine.saved_part(1) {}
        shard.checkpoint();
        let kinds = [b'I', b'L', b'Q'].map(|kind| shard.table.rows_of(kind));
        assert_eq!(kinds, [1, 1, 1]);
        shard.restart();
        let left = shard.hand_over("ann", inbox, &[]);
        assert_eq!(left.len(), 1);
    }
}

#[test]
fn the_tables_may_get_a_checkpoint_while_a_session_ends() {
    let (mut shard, inbox, remove) = laden();
    let changes = shard.collect();
    assert_eq!(shard.part(&remove), None);
    shard.table.write(&changes);
    while !shard.machine.saved_part(1) {}
    while shard.part(&remove).is_none() {}
    assert_eq!(shard.drops(), dropped(&["1", "2", "3", "4", "6"]));
    shard.checkpoint();
    let kinds = [b'I', b'L', b'Q'].map(|kind| shard.table.rows_of(kind));
    assert_eq!(kinds, [0, 1, 1]);
    assert_eq!(shard.hand_over("ann", inbox, &[5]), []);
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'Q'), 0);
}

#[test]
#[should_panic(expected = "between two operations")]
fn a_shard_is_not_raised_while_a_session_ends() {
    let (mut shard, _, remove) = laden();
    assert_eq!(shard.part(&remove), None);
    shard.machine.raise(crate::Level::NEWEST);
}

#[test]
#[should_panic(expected = "between two operations")]
fn a_shard_is_not_split_while_a_session_ends() {
    let (mut shard, _, remove) = laden();
    assert_eq!(shard.part(&remove), None);
    let _upper = crate::Split::split_off(&mut shard.machine, 1);
}
