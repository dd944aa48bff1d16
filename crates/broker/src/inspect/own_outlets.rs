//! What this node says of its outlets.

use admin::api::{Amount, At, OutletDirection, OutletDrops, OutletFigures, OutletRow, OutletState};
use admin::cluster::NodeId;
use inspection::OutletHere;
use outlets::{Doing, SourceDefinition, TargetDefinition, Transfer};

use super::wire::ToWire as _;
use crate::node::Node;
use crate::outlets::{Outlets, Place, Standing};

/// The outlets of its configuration, by name, with the figures of those that are here.
pub(super) fn list(node: &Node, outlets: &Outlets) -> Vec<OutletRow> {
    let known = outlets.list().into_iter();
    known
        .filter_map(|(name, standing)| row(node, name, &standing))
        .collect()
}

/// What other nodes are told: the outlets that are here.
pub(super) fn here(node: &Node, outlets: &Outlets) -> Vec<OutletHere> {
    let rows = list(node, outlets).into_iter();
    let here = rows.filter_map(|row| {
        Some(OutletHere {
            name: row.name,
            state: row.state.to_wire(),
            is_paused: row.paused?,
            figures: row.figures?.to_wire(),
        })
    });
    here.collect()
}

/// `None`: it has no definition, and is about to go.
fn row(node: &Node, name: String, standing: &Standing) -> Option<OutletRow> {
    let transfer = standing.transfer.as_deref()?;
    let is_here = standing.place == Place::Here;
    let (direction, target, place) = match transfer {
        Transfer::Outlet(outlet) => {
            let (target, place) = match &outlet.target {
                TargetDefinition::File { path, .. } => ("file", path.display().to_string()),
                TargetDefinition::Http(http) => ("http", http.url.clone()),
                TargetDefinition::Kafka(kafka) => ("kafka", kafka.servers.servers.join(",")),
                TargetDefinition::Mqtt(mqtt) => ("mqtt", mqtt.broker.url.clone()),
                TargetDefinition::Nats(nats) => ("nats", nats.servers.urls.join(",")),
                TargetDefinition::Postgres(postgres) => ("postgres", postgres.url.clone()),
            };
            (OutletDirection::Out, target, place)
        }
        Transfer::Inlet(inlet) => {
            let (source, place) = match &inlet.source {
                SourceDefinition::Mqtt(mqtt) => ("mqtt", mqtt.broker.url.clone()),
                SourceDefinition::Kafka(kafka) => ("kafka", kafka.servers.servers.join(",")),
                SourceDefinition::Nats(nats) => ("nats", nats.servers.urls.join(",")),
            };
            (OutletDirection::In, source, place)
        }
    };
    Some(OutletRow {
        name,
        direction,
        state: state(standing),
        paused: is_here.then_some(standing.is_paused),
        node: match standing.place {
            Place::Here => Some(NodeId(node.store().node())),
            Place::At(other) => Some(other),
            Place::Nowhere => None,
        },
        target: target.to_owned(),
        place,
        filters: transfer.filters().to_vec(),
        dead_letter: match transfer {
            Transfer::Outlet(outlet) => outlet.dead_letter.clone(),
            Transfer::Inlet(_) => None,
        },
        figures: is_here.then(|| figures(node, transfer, standing)),
    })
}

fn state(standing: &Standing) -> OutletState {
    match (standing.place, standing.report.doing) {
        (Place::At(_) | Place::Nowhere, _) => OutletState::Elsewhere,
        (Place::Here, Doing::Starting) => OutletState::Starting,
        (Place::Here, Doing::Opening) => OutletState::Opening,
        (Place::Here, Doing::Running) => OutletState::Running,
        (Place::Here, Doing::Retrying) => OutletState::Retrying,
        (Place::Here, Doing::Paused) => OutletState::Paused,
        (Place::Here, Doing::Fenced) => OutletState::Fenced,
    }
}

fn figures(node: &Node, transfer: &Transfer, standing: &Standing) -> OutletFigures {
    let inbox = match transfer {
        Transfer::Outlet(outlet) => {
            let (_, inbox) = (node.store().inspect()).inbox(&outlet.client_id());
            inbox.found()
        }
        // What waits for it is at the other broker.
        Transfer::Inlet(_) => None,
    };
    let total = standing.total();
    OutletFigures {
        lag_messages: inbox.as_ref().map(|inbox| Amount(inbox.messages)),
        lag_bytes: inbox.as_ref().map(|inbox| Amount(inbox.bytes)),
        oldest_at: inbox
            .and_then(|inbox| inbox.oldest_since)
            .map(|since| At::unix_ms(since.0)),
        delivered: Amount(total.delivered.0),
        left_out: Amount(total.left_out.0),
        retries: Amount(total.retries.0),
        dead: Amount(total.dead.0),
        filtered: Amount(total.filtered.0),
        dropped: OutletDrops {
            dead_letter_unclaimed: Amount(total.unclaimed.0),
            refused: Amount(total.refused.0),
            bridge_loop: Amount(total.looped.0),
        },
        waiting_messages: Amount(standing.report.waiting_messages.0),
        attempt: Amount(standing.report.attempt.0),
        position: total.position,
        delivered_at: total.delivered_at.map(|at| At::unix_ms(at.0)),
        batch_ms: (total.batches.0 > 0)
            .then(|| total.delivering.0 as f64 / total.batches.0 as f64 / 1e3),
        last_error: standing.report.last_error.clone(),
        failing_s: standing
            .failing_since
            .map(|since| Amount(since.elapsed().as_secs())),
        process: standing.process.map(|process| process.0),
        starts: Amount(standing.starts as u64),
        last_end: standing.last_end.clone(),
    }
}
