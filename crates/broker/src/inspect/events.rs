//! What happens on all nodes.

use std::sync::Arc;
use std::time::Duration;

use admin::EventFilter;
use admin::api::{EventKind, Gap, Happened};
use admin::cluster::NodeId;
use admin::problem::{Kind, Problem};
use inspection::{
    ANSWER_BYTES, Answer, At, Event, EventsPart, EventsQuestion, Missed, Place, Position, Question,
    UnixMs, size,
};
use mqtt_proto::filter_matches;
use mqtt_session::Timestamp;

use super::gather;
use super::rows::Own;
use super::state::Inspect;
use super::wire::{ToApi as _, ToWire as _};
use crate::events;
use crate::node::Node;
use crate::outlets::{EventNumber, OwnEvents};

/// Events of a node in one answer.
const MOST: usize = 500;

/// Events that one question looks at.
const LOOKED_AT: usize = 4_096;

/// What has happened on this node.
pub(super) fn here(node: &Node, own: &Own, question: &EventsQuestion) -> EventsPart {
    let incarnation = node.store().incarnation();
    let kinds = question.kinds.clone().to_api();
    let wanted = events::Wanted::of(&kinds);
    let since = |UnixMs(since_ms)| {
        let first = node.rim.events.first_since(Timestamp(since_ms), wanted);
        Place(incarnation, first)
    };
    let place = question.after.or_else(|| question.since_ms.map(since));
    let Some(Place(of, from)) = place else {
        return EventsPart {
            events: Vec::new(),
            next: Place(incarnation, node.rim.events.next()),
            missed: None,
            more: false,
        };
    };
    let from = if of == incarnation { from } else { 0 };
    let read = node
        .rim
        .events
        .read(from, MOST, LOOKED_AT, wanted, |event| {
            is_wanted(question, &kinds, event)
        });
    let missed = match read.numbers.start.saturating_sub(from) {
        _ if of != incarnation => Some(Missed::Unknown),
        0 => None,
        missed => Some(Missed::Some(missed)),
    };
    let (mut events, mut next, mut bytes) = (Vec::new(), read.numbers.end, 0);
    for (seq, event) in &read.events {
        // Clients choose how long names are.
        if bytes >= ANSWER_BYTES {
            next = *seq;
            break;
        }
        let row = row(own, *seq, event);
        bytes += size(&row);
        events.push(row);
    }
    EventsPart {
        more: next < node.rim.events.next(),
        next: Place(incarnation, next),
        missed,
        events,
    }
}

/// What has happened on this node from a number on, of some kinds; 500 at most.
pub(super) fn own_events(
    events: &events::Events,
    own: &Own,
    kinds: &[EventKind],
    from: EventNumber,
) -> OwnEvents {
    let wanted = events::Wanted::of(kinds);
    let is_wanted = |event: &events::Event| kinds.contains(&event.kind);
    let read = events.read(from.0, MOST, LOOKED_AT, wanted, is_wanted);
    let text = |(seq, event): &(u64, Arc<events::Event>)| {
        let text = serde_json::to_string(&row(own, *seq, event).to_api());
        let text = text.expect("an event has string keys only");
        (event.kind, text)
    };
    let missed = read.numbers.start.saturating_sub(from.0);
    OwnEvents {
        events: read.events.iter().map(text).collect(),
        next: EventNumber(read.numbers.end),
        missed: usize::try_from(missed).unwrap_or(usize::MAX),
    }
}

fn is_wanted(question: &EventsQuestion, kinds: &[EventKind], event: &events::Event) -> bool {
    let client = event.client_id.as_deref();
    let is_client =
        |wanted: &String| client.is_some_and(|client| *client == *events::shown(wanted));
    let begins = |prefix: &String| client.is_some_and(|client| client.starts_with(prefix.as_str()));
    let matches = |filter: &String| {
        let topic = event.topic.as_deref();
        topic.is_some_and(|topic| filter_matches(filter, topic))
    };
    (kinds.is_empty() || kinds.contains(&event.kind))
        && question.client_id.as_ref().is_none_or(is_client)
        && question.prefix.as_ref().is_none_or(begins)
        && question.topic.as_ref().is_none_or(matches)
}

fn row(own: &Own, seq: u64, event: &events::Event) -> Event {
    let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
    Event {
        kind: event.kind.to_wire(),
        at: At::unix_ms(event.at.0),
        node: own.node,
        node_name: own.name.clone(),
        seq: seq.into(),
        client_id: text(&event.client_id),
        user: text(&event.user),
        address: text(&event.address),
        reason: event.reason.as_deref().map(str::to_owned),
        topic: text(&event.topic),
        count: event.count,
        detail: text(&event.detail),
        subject: event.subject.as_deref().cloned().to_wire(),
    }
}

/// What has happened on all nodes since a position.
pub(super) async fn of_all(
    inspect: &Arc<Inspect>,
    filter: EventFilter,
    after: Option<String>,
    budget: Duration,
) -> Result<Happened, Problem> {
    let mut position = match after.map(|text| Position::parse(&text)) {
        None => Position::default(),
        Some(Some(position)) => position,
        Some(None) => {
            let why = "`after` is to be the `id` of an event";
            return Err(Problem::new(Kind::InvalidCursor, why).with("parameter", "after"));
        }
    };
    let nodes = gather::nodes(&inspect.control.status(), &inspect.name);
    let wanted = nodes.iter().map(|(node, ..)| *node);
    let wanted: Vec<NodeId> = wanted
        .filter(|node| filter.node.is_none_or(|wanted| wanted == *node))
        .collect();
    let question = |node: NodeId| {
        Question::Events(EventsQuestion {
            after: position.get(node.to_wire()),
            since_ms: filter.since_ms.map(UnixMs),
            kinds: filter.kinds.clone().to_wire(),
            client_id: filter.client_id.clone(),
            prefix: filter.prefix.clone(),
            topic: filter.topic.clone(),
        })
    };
    let answers = gather::some(inspect, &nodes, &wanted, question, budget).await;
    let (parts, partial) = gather::sort(answers, "events", |answer| match answer {
        Answer::Events(part) => Some(part),
        _ => None,
    });
    let (mut gaps, mut events, mut more) = (Vec::new(), Vec::new(), false);
    for (node, node_name, part) in parts {
        if let Some(missed) = part.missed {
            gaps.push(Gap {
                node,
                node_name,
                count: match missed {
                    Missed::Some(count) => Some(count),
                    Missed::Unknown => None,
                },
            });
        }
        position.set(node.to_wire(), part.next);
        events.extend(part.events.to_api());
        more |= part.more;
    }
    Ok(Happened {
        gaps,
        events,
        position: position.to_string(),
        partial,
        more,
    })
}
