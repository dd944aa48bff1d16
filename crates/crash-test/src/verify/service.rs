//! Judges what is not about a single delivery: sessions, what stayed open, retained messages, full disks.

use super::{Kind, Violation};
use crate::model::{At, FullDisk, MessageIndex, Model, Reading, Unfinished};

pub(super) fn check(model: &Model) -> Vec<Violation> {
    let mut found = Vec::new();
    sessions(model, &mut found);
    unfinished(model, &mut found);
    for reading in &model.readings {
        retained(model, reading, &mut found);
    }
    for full in &model.full_disks {
        full_disk(model, full, &mut found);
    }
    for (client, at, complaint) in &model.complaints {
        found.push(Violation {
            client: Some(*client),
            detail: complaint.clone(),
            ..general(Kind::ProtocolBroken, *at)
        });
    }
    for (at, how) in &model.exits {
        found.push(Violation {
            detail: how.clone(),
            ..general(Kind::BrokerEnded, *at)
        });
    }
    found
}

fn general(kind: Kind, at: At) -> Violation {
    Violation {
        kind,
        client: None,
        message: None,
        at,
        detail: String::new(),
    }
}

fn sessions(model: &Model, found: &mut Vec<Violation>) {
    for (index, client) in model.clients.iter().enumerate() {
        for at in &client.session_losses {
            found.push(Violation {
                client: Some(index),
                ..general(Kind::SessionLost, *at)
            });
        }
    }
}

fn unfinished(model: &Model, found: &mut Vec<Violation>) {
    for (client, message, what, at) in &model.unfinished {
        let kind = match what {
            Unfinished::Acknowledgement => Kind::NeverAcknowledged,
            Unfinished::Release => Kind::ReleaseMissing,
        };
        found.push(Violation::new(kind, *client, *message, *at));
    }
}

/// Right is the last acknowledged message of a topic, or any that was sent after it.
fn retained(model: &Model, reading: &Reading, found: &mut Vec<Violation>) {
    let mut topics: Vec<&str> = model
        .messages
        .iter()
        .filter(|message| message.retain && message.first_sent() < reading.from)
        .map(|message| message.topic.as_str())
        .collect();
    topics.sort_unstable();
    topics.dedup();
    for topic in topics {
        let value = reading.values.get(topic).copied();
        let allowed = allowed_values(model, topic, reading);
        if !allowed.contains(&value) {
            let expected = allowed.last().copied().flatten();
            found.push(Violation {
                message: value.or(expected),
                detail: format!("{topic} holds {value:?}, right would be {allowed:?}"),
                ..general(Kind::RetainedWrong, reading.to)
            });
        }
    }
}

/// Messages that may be retained under a topic; `None`: none at all.
fn allowed_values(model: &Model, topic: &str, reading: &Reading) -> Vec<Option<MessageIndex>> {
    let mut allowed = vec![None];
    for (index, message) in model.messages.iter().enumerate() {
        let is_sent = message.first_sent() < reading.to;
        if !message.retain || message.topic != topic || !is_sent {
            continue;
        }
        if message.acknowledged().is_some_and(|at| at < reading.from) {
            allowed.clear();
        }
        allowed.push((!message.clears).then_some(index));
    }
    allowed
}

fn full_disk(model: &Model, full: &FullDisk, found: &mut Vec<Violation>) {
    for (index, message) in model.messages.iter().enumerate() {
        let Some(acknowledged) = message.acknowledged() else {
            continue;
        };
        let is_within = full.from < message.first_sent() && acknowledged < full.to;
        let owner = model
            .subscriptions
            .iter()
            .find(|subscription| subscription.must_receive(message));
        if let (true, Some(owner)) = (is_within, owner) {
            let kind = Kind::AcknowledgedOnFullDisk;
            found.push(Violation::new(kind, owner.client, index, acknowledged));
        }
    }
    if !full.served {
        found.push(general(Kind::NotServedOnFullDisk, full.to));
    }
    if !full.recovered {
        found.push(general(Kind::NotRecoveredFromFullDisk, full.to));
    }
}
