//! Scripts: the other broker, the node and people in turn.

use super::*;

type Tested = Inlet<&'static str, u32>;

const NOW: Milliseconds = Milliseconds(1_000);

const OPTIONS: InletOptions = InletOptions {
    messages: 4,
    bytes: 100,
};

fn connected() -> Tested {
    let mut inlet = Tested::new(OPTIONS, false, 7);
    assert_eq!(actions(&mut inlet), [InletAction::Connect]);
    inlet.handle_connected();
    inlet.handle_subscribed();
    inlet
}

fn actions(inlet: &mut Tested) -> Vec<InletAction<u32>> {
    std::iter::from_fn(|| inlet.poll_action()).collect()
}

/// Publishes what can be, and gives it.
fn published(inlet: &mut Tested) -> Vec<(MessageNumber, &'static str)> {
    let mut all = Vec::new();
    while let Some((number, message)) = inlet.poll_publish().map(|(number, text)| (number, *text)) {
        inlet.handle_published(number, message != "qos0");
        all.push((number, message));
    }
    all
}

fn texts(published: &[(MessageNumber, &'static str)]) -> Vec<&'static str> {
    published.iter().map(|(_, text)| *text).collect()
}

#[test]
fn acknowledgements_have_the_order_of_the_messages() {
    let mut inlet = connected();
    for (message, answer) in [("a", 1), ("b", 2)] {
        inlet.handle_message(message, 10, Some(answer));
    }
    inlet.handle_drop(InletDrop::Looped, Some(3));
    let sent = published(&mut inlet);
    assert_eq!(texts(&sent), ["a", "b"]);
    assert_eq!(actions(&mut inlet), []);
    inlet.handle_answer(sent[1].0, NodeAnswer::Taken, NOW);
    assert_eq!(actions(&mut inlet), []);
    inlet.handle_answer(sent[0].0, NodeAnswer::Refused("no".into()), NOW);
    let expected = [1, 2, 3].map(InletAction::Acknowledge);
    assert_eq!(actions(&mut inlet), expected);
    let figures = inlet.figures();
    assert_eq!(
        (figures.delivered, figures.refused, figures.looped),
        (Total(2), Total(1), Total(1))
    );
    assert_eq!((inlet.waiting(), inlet.last_error()), ((0, 0), Some("no")));
}

#[test]
fn no_more_is_read_than_there_is_room_for() {
    let mut inlet = connected();
    inlet.handle_message("large", 100, Some(1));
    assert!(!inlet.wants_more());
    let sent = published(&mut inlet);
    assert!(!inlet.wants_more());
    inlet.handle_answer(sent[0].0, NodeAnswer::Taken, NOW);
    assert!(inlet.wants_more());
    for answer in 2..6 {
        inlet.handle_message("small", 1, Some(answer));
    }
    assert!(!inlet.wants_more());
}

#[test]
fn what_comes_again_is_forgotten_when_the_connection_is_lost() {
    let mut inlet = connected();
    inlet.handle_message("a", 10, Some(1));
    let sent = published(&mut inlet);
    inlet.handle_message("b", 10, Some(2));
    inlet.handle_message("qos0", 10, None);
    inlet.handle_connection_lost("reset".into(), NOW);
    assert_eq!(inlet.last_error(), Some("reset"));
    assert_eq!(texts(&published(&mut inlet)), ["qos0"]);
    // The node's answer comes late: the message is taken, and its acknowledgement belongs to no connection.
    inlet.handle_answer(sent[0].0, NodeAnswer::Taken, NOW);
    assert_eq!(actions(&mut inlet), []);
    assert_eq!(inlet.figures().delivered, Total(2));
    assert_eq!(inlet.waiting(), (0, 0));
}

#[test]
fn pauses_between_attempts_grow_until_the_filters_are_accepted() {
    let mut inlet = Tested::new(OPTIONS, false, 7);
    let mut now = NOW;
    let mut before = 0;
    for attempt in 2..6 {
        assert_eq!(actions(&mut inlet), [InletAction::Connect]);
        // CONNACK alone is no success: the filters may be refused each time.
        inlet.handle_connected();
        inlet.handle_connection_lost("filter refused".into(), now);
        let InletState::Waiting {
            attempt: next,
            until,
        } = inlet.state()
        else {
            panic!("{:?}", inlet.state());
        };
        assert_eq!(next, Attempt(attempt));
        let pause = until.0 - now.0;
        assert!(pause > before, "{pause} after {before}");
        (before, now) = (pause, until);
        inlet.handle_deadline(Milliseconds(until.0 - 1));
        assert_eq!(actions(&mut inlet), []);
        assert_eq!(inlet.poll_deadline(), Some(until));
        inlet.handle_deadline(until);
    }
    inlet.handle_connected();
    inlet.handle_subscribed();
    assert_eq!(inlet.last_error(), None);
    inlet.handle_connection_lost("reset".into(), now);
    assert!(
        inlet
            .poll_deadline()
            .is_some_and(|until| until.0 - now.0 <= 1_200)
    );
}

#[test]
fn a_busy_node_gets_the_message_again_after_a_pause() {
    let mut inlet = connected();
    inlet.handle_message("a", 10, Some(1));
    inlet.handle_message("b", 10, Some(2));
    let sent = published(&mut inlet);
    inlet.handle_answer(sent[0].0, NodeAnswer::Busy("quota".into()), NOW);
    inlet.handle_answer(sent[1].0, NodeAnswer::Taken, NOW);
    assert_eq!((inlet.busy(), inlet.last_error()), (0, Some("quota")));
    assert_eq!(published(&mut inlet), []);
    assert_eq!(actions(&mut inlet), []);
    let until = inlet.poll_deadline().unwrap();
    inlet.handle_deadline(until);
    let again = published(&mut inlet);
    assert_eq!(again, [sent[0]]);
    inlet.handle_answer(again[0].0, NodeAnswer::Taken, until);
    assert_eq!(actions(&mut inlet), [1, 2].map(InletAction::Acknowledge));
}

#[test]
fn a_pause_finishes_what_the_node_has_and_leaves_the_rest() {
    let mut inlet = connected();
    inlet.handle_message("a", 10, Some(1));
    let sent = published(&mut inlet);
    inlet.handle_message("b", 10, Some(2));
    inlet.handle_pause(true);
    assert_eq!(inlet.state(), InletState::Leaving);
    inlet.handle_message("c", 10, Some(3));
    assert_eq!(published(&mut inlet), []);
    assert!(!inlet.wants_more());
    inlet.handle_answer(sent[0].0, NodeAnswer::Taken, NOW);
    assert_eq!(
        actions(&mut inlet),
        [InletAction::Acknowledge(1), InletAction::Disconnect]
    );
    assert_eq!(
        (inlet.state(), inlet.waiting()),
        (InletState::Paused, (0, 0))
    );
    inlet.handle_pause(false);
    assert_eq!(actions(&mut inlet), [InletAction::Connect]);
}

#[test]
fn a_pause_that_ends_at_once_still_connects_anew() {
    let mut inlet = connected();
    inlet.handle_message("a", 10, Some(1));
    let sent = published(&mut inlet);
    inlet.handle_pause(true);
    // This one is left out: only another connection brings it again.
    inlet.handle_message("b", 10, Some(2));
    inlet.handle_pause(false);
    inlet.handle_answer(sent[0].0, NodeAnswer::Taken, NOW);
    let expected = [
        InletAction::Acknowledge(1),
        InletAction::Disconnect,
        InletAction::Connect,
    ];
    assert_eq!(actions(&mut inlet), expected);
}

#[test]
fn a_pause_behind_a_message_that_is_tried_again_acknowledges_nothing_that_follows_it() {
    let mut inlet = connected();
    for (message, answer) in [("a", 1), ("b", 2), ("c", 3)] {
        inlet.handle_message(message, 10, Some(answer));
    }
    let sent = published(&mut inlet);
    inlet.handle_answer(sent[1].0, NodeAnswer::Busy("quota".into()), NOW);
    inlet.handle_pause(true);
    inlet.handle_answer(sent[2].0, NodeAnswer::Taken, NOW);
    inlet.handle_answer(sent[0].0, NodeAnswer::Taken, NOW);
    assert_eq!(
        actions(&mut inlet),
        [InletAction::Acknowledge(1), InletAction::Disconnect]
    );
}

#[test]
fn an_inlet_that_begins_paused_connects_when_the_pause_ends() {
    let mut inlet = Tested::new(OPTIONS, true, 7);
    assert_eq!(
        (actions(&mut inlet), inlet.state()),
        (vec![], InletState::Paused)
    );
    inlet.handle_pause(false);
    assert_eq!(actions(&mut inlet), [InletAction::Connect]);
    inlet.handle_pause(true);
    assert_eq!(actions(&mut inlet), [InletAction::Disconnect]);
    inlet.handle_connected();
    assert_eq!(inlet.state(), InletState::Paused);
}
