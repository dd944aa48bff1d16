//! What ended sessions leave to their shared groups.

use super::*;
use crate::inbox::origins::LINGER_MS;

const GROUP: &str = "$share/g/a";

/// A session of a group that has these messages and ends; the number that its inbox had.
fn left(shard: &mut Shard, client: &str, messages: &[&str]) -> u64 {
    let inbox = shard.session(client, GROUP);
    let items = messages.iter();
    shard.apply(&InboxOp::Deliver {
        session: client.into(),
        items: items
            .map(|payload| item("a", payload, QoS::AtLeastOnce, Some(GROUP)))
            .collect(),
        origin: None,
    });
    remove(shard, client, 1);
    inbox
}

fn remove(shard: &mut Shard, client: &str, epoch: u64) {
    let removed = shard.apply(&InboxOp::Remove {
        session: client.into(),
        epoch,
    });
    assert_eq!(removed, InboxReply::Done);
}

/// Sequences and payloads of what is still to be handed over.
fn rest(shard: &mut Shard, client: &str, inbox: u64, done: &[u64]) -> Vec<(u64, String)> {
    let items = shard.hand_over(client, inbox, done);
    let payload = |item: &Item| String::from_utf8(item.message.body.payload().to_vec()).unwrap();
    items
        .iter()
        .map(|(of, item)| (*of, payload(item)))
        .collect()
}

/// What a replica that begins to lead tells.
fn told(shard: &Shard) -> Vec<Event> {
    let mut recorder = Recorder::default();
    shard.machine.for_each_legacy(&mut recorder);
    recorder.0
}

#[test]
fn it_stays_until_others_have_it() {
    let mut shard = Shard::new();
    let inbox = left(&mut shard, "ann", &["1", "2", "3"]);
    let legacy = [Event::LeftBehind("ann".into(), inbox)];
    assert_eq!(told(&shard), legacy);
    shard.checkpoint();
    shard.restart();
    assert_eq!(told(&shard), legacy);
    let counts = shard.machine.counts();
    assert_eq!(
        (counts.inboxes, counts.legacies, counts.messages),
        (0, 1, 3)
    );
    let all = payloads(&[(1, "1"), (2, "2"), (3, "3")]);
    assert_eq!(rest(&mut shard, "ann", inbox, &[]), all);
    assert_eq!(
        rest(&mut shard, "ann", inbox, &[2]),
        payloads(&[(1, "1"), (3, "3")])
    );
    shard.checkpoint();
    shard.restart();
    assert_eq!(rest(&mut shard, "ann", inbox, &[1, 2, 3]), []);
    assert_eq!(told(&shard), []);
    // Another node says the same, late.
    assert_eq!(rest(&mut shard, "ann", inbox, &[1, 2, 3]), []);
    shard.checkpoint();
    assert_eq!(shard.table.rows.len(), 1, "only the machine's own row");
    assert_eq!(shard.machine.counts(), InboxCounts::default());
}

#[test]
fn what_is_handed_over_before_a_checkpoint_never_reaches_the_tables() {
    let mut shard = Shard::new();
    let inbox = left(&mut shard, "ann", &["1"]);
    assert_eq!(rest(&mut shard, "ann", inbox, &[1]), []);
    let changes = shard.checkpoint();
    assert_eq!(changes.entries.len(), 1, "the machine's own row");
    assert_eq!(shard.machine.unsaved_bytes(), 0);
}

#[test]
fn a_new_session_of_the_client_has_nothing_to_do_with_it() {
    let mut shard = Shard::new();
    let first = left(&mut shard, "ann", &["1"]);
    shard.checkpoint();
    shard.attach("ann", 2, true);
    let second = shard.attach("ann", 3, false);
    assert_eq!(second.first, 1);
    assert_eq!(shard.queue(second.inbox), []);
    assert_eq!(shard.queue(first), [], "nobody reads a legacy as an inbox");
    shard.subscribe("ann", 3, GROUP, QoS::AtLeastOnce);
    shard.apply(&InboxOp::Deliver {
        session: "ann".into(),
        items: vec![item("a", "2", QoS::AtLeastOnce, Some(GROUP))],
        origin: None,
    });
    shard.checkpoint();
    shard.restart();
    remove(&mut shard, "ann", 3);
    let of = |inbox| Event::LeftBehind("ann".into(), inbox);
    assert_eq!(told(&shard), [of(first), of(second.inbox)]);
    assert_eq!(
        rest(&mut shard, "ann", second.inbox, &[]),
        payloads(&[(1, "2")])
    );
    assert_eq!(rest(&mut shard, "bob", first, &[1]), []);
    assert_eq!(rest(&mut shard, "ann", first, &[]), payloads(&[(1, "1")]));
}

#[test]
fn it_is_told_in_pages() {
    let mut shard = Shard::new();
    let many: Vec<String> = (1..=300).map(|number| number.to_string()).collect();
    let many: Vec<&str> = many.iter().map(|payload| &**payload).collect();
    let inbox = left(&mut shard, "ann", &many);
    let mut got = Vec::new();
    let mut done = Vec::new();
    let mut pages = Vec::new();
    loop {
        shard.checkpoint();
        let page = rest(&mut shard, "ann", inbox, &done);
        if page.is_empty() {
            break;
        }
        pages.push(page.len());
        done = page.iter().map(|(of, _)| *of).collect();
        got.extend(page.into_iter().map(|(_, payload)| payload));
    }
    assert_eq!(pages, [128, 128, 44]);
    assert_eq!(got, many);
    let long = "x".repeat(200_000);
    let inbox = left(&mut shard, "bob", &[&long, &long, &long]);
    assert_eq!(rest(&mut shard, "bob", inbox, &[]).len(), 2);
}

#[test]
fn what_others_were_given_is_known_for_a_while() {
    let mut shard = Shard::new();
    let bob = shard.sleeper("bob", GROUP);
    let give = |shard: &mut Shard, sequence| {
        shard.apply(&InboxOp::Deliver {
            session: "bob".into(),
            items: vec![item("a", "x", QoS::AtLeastOnce, Some(GROUP))],
            origin: Some(Origin {
                client: "\0legacy".into(),
                incarnation: sequence,
                packet_id: 0,
            }),
        });
        shard.machine.queue_len(bob)
    };
    let given = [1, 2, 1, 2].map(|sequence| give(&mut shard, sequence));
    assert_eq!(given, [1, 2, 2, 2]);
    shard.apply(&InboxOp::Forget {
        client: "\0legacy".into(),
        incarnation: u64::MAX,
    });
    shard.checkpoint();
    shard.restart();
    shard.header.now_ms += LINGER_MS - 1;
    assert_eq!(give(&mut shard, 1), 2, "a node that was late");
    shard.header.now_ms += 1;
    assert_eq!(give(&mut shard, 2), 3);
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'R'), 0);
}
