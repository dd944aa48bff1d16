//! A shard is raised from the level of programs that knew of none.

use super::*;
use crate::Level;
use crate::inbox::tables::{FENCE, PAGE, PENDING_FILTER, PENDING_OF_CLIENT};

/// Bytes of an identifier that is not its own name.
const LONG: usize = 90;

fn long() -> String {
    "l".repeat(LONG)
}

fn origin(client: &str, packet_id: u16) -> Origin {
    Origin {
        client: client.into(),
        incarnation: 1,
        packet_id,
    }
}

impl Shard {
    fn at(level: Level) -> Self {
        let mut shard = Self::new();
        shard.load_at(level);
        shard
    }

    fn load_at(&mut self, level: Level) {
        let slots = Slots {
            level,
            ..Slots::ALL
        };
        self.machine = InboxMachine::load(slots, &self.table).unwrap();
    }

    fn has_row_of(&self, client: &str) -> bool {
        let mut keys = self.table.rows.keys();
        keys.any(|key| {
            key.windows(client.len())
                .any(|part| part == client.as_bytes())
        })
    }
}

/// What is owed, not released and fenced, and what it is told of at a repetition.
fn check(shard: &mut Shard) {
    let client = long();
    let attached = shard.attach(&client, 9, true);
    assert!(attached.present);
    assert_eq!(attached.owed.len(), 2, "{:?}", attached.owed);
    assert_eq!(attached.received.iter().count(), 1);
    let again = publish(
        message("a", "1", QoS::ExactlyOnce),
        Some(origin(&client, 7)),
    );
    shard.apply(&again);
    assert_eq!(
        shard.machine.queue_len(attached.inbox),
        1,
        "it happened before"
    );
    let released = InboxOp::ReleaseFenced {
        origin: origin(&client, 8),
        epoch: 4,
    };
    assert_eq!(shard.apply(&released), InboxReply::Fenced);
}

fn filled() -> Shard {
    let client = long();
    let mut shard = Shard::at(Level::UNGATED);
    shard.attach(&client, 1, true);
    shard.subscribe(&client, 1, "a", QoS::ExactlyOnce);
    shard.subscribe(&client, 1, "b/#", QoS::ExactlyOnce);
    shard.apply(&publish(
        message("a", "1", QoS::ExactlyOnce),
        Some(origin(&client, 7)),
    ));
    shard.apply(&InboxOp::ReleaseFenced {
        origin: origin(&client, 99),
        epoch: 5,
    });
    shard
}

#[test]
fn rows_of_the_level_before_are_written_anew() {
    for is_saved in [false, true] {
        let mut shard = filled();
        if is_saved {
            shard.checkpoint();
            assert_eq!(shard.table.rows_of(PENDING_OF_CLIENT), 2);
            assert_eq!(shard.table.rows_of(PENDING_FILTER), 0);
            shard.load_at(Level::UNGATED);
        }
        shard.machine.raise(Level::RAISED);
        shard.checkpoint();
        for kind in [PAGE, FENCE] {
            assert_eq!(shard.table.rows_of(kind), 1);
        }
        assert_eq!(shard.table.rows_of(PENDING_OF_CLIENT), 0);
        assert_eq!(shard.table.rows_of(PENDING_FILTER), 2);
        // Only that of the inbox is by the identifier.
        let own = shard
            .table
            .rows
            .remove(&shard.table.keys_of(b'I')[0])
            .unwrap();
        assert!(!shard.has_row_of(&long()));
        let key = crate::row::key(b'I', crate::NameHash::default().slot_of(&long()), &long());
        shard.table.rows.insert(key, own);
        shard.load_at(Level::RAISED);
        check(&mut shard);
    }
}

#[test]
fn nothing_is_forgotten_by_a_raise_in_memory() {
    let mut shard = filled();
    shard.machine.raise(Level::RAISED);
    check(&mut shard);
}

#[test]
fn a_session_that_ends_after_the_raise_leaves_no_rows() {
    let mut shard = filled();
    shard.checkpoint();
    shard.machine.raise(Level::RAISED);
    shard.attach(&long(), 6, false);
    shard.checkpoint();
    let rows = [PENDING_OF_CLIENT, PENDING_FILTER].map(|kind| shard.table.rows_of(kind));
    assert_eq!(rows, [0, 0]);
}

#[test]
fn requests_are_lowered_to_what_a_log_of_the_first_level_can_have() {
    let mut shard = Shard::at(Level::UNGATED);
    let inbox = shard.attach("ann", 1, true);
    let number = InboxId::new(crate::NameHash::default().slot_of("ann"), inbox.inbox);
    let detach = |session: SessionName| InboxOp::Detach {
        session,
        epoch: 1,
        sent: 0,
    };
    let lowered = |op: InboxOp| {
        let lowered = shard.machine.lowered(op, Level::UNGATED);
        format!("{lowered:?}")
    };
    let by_client = format!("{:?}", Some(detach("ann".into())));
    assert_eq!(lowered(detach(SessionName::Inbox(number))), by_client);
    let gone = SessionName::Inbox(InboxId::new(0, 99));
    assert_eq!(
        lowered(detach(gone)),
        format!("{:?}", Some(detach("\0".into())))
    );
    let attach_as = |resume, last| InboxOp::AttachAs {
        client: "ann".into(),
        epoch: 2,
        node: 1,
        node_incarnation: 1,
        resume,
        last,
        class: ClassId(7),
    };
    assert!(lowered(attach_as(true, Some((1, false)))).contains("AttachAgain"));
    assert!(lowered(attach_as(false, None)).starts_with("Some(Attach {"));
    let trim = InboxOp::Trim {
        session: "ann".into(),
        from: 0,
        below: 1,
        limit: RetentionLimit::Age,
    };
    assert_eq!(lowered(trim), "None");
    // Replicas of that level begin a session anew whose own connection attaches twice.
    let attach = |epoch| InboxOp::Attach {
        client: "ann".into(),
        epoch,
        node: 1,
        node_incarnation: 1,
        resume: false,
    };
    assert!(lowered(attach(1)).contains("resume: true"));
    assert!(lowered(attach(2)).contains("resume: false"));
    assert!(
        !shard.attach("ann", 1, true).present,
        "it was not there before its connection"
    );
}
