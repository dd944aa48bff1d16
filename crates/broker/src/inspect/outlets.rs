//! What people are told of outlets.

use std::sync::Arc;
use std::time::Duration;

use admin::api::{At, OutletFigures, OutletRow, OutletState};
use admin::cluster::NodeId;
use admin::problem::{Kind, Problem};
use admin::{Asked, Outlets};
use futures_util::FutureExt as _;
use outlets::{Definition, Doing, TargetDefinition};

use super::publishing::publish_internal;
use crate::node::Node;
use crate::outlets::{Place, Standing, message, pause_topic};

/// How long stores may take to keep a pause.
const BUDGET: Duration = Duration::from_secs(5);

/// The outlets of this node.
#[derive(Debug)]
pub(super) struct OwnOutlets {
    pub(super) node: Arc<Node>,
    pub(super) outlets: Arc<crate::outlets::Outlets>,
}

impl Outlets for OwnOutlets {
    fn list(&self) -> Vec<OutletRow> {
        let outlets = self.outlets.list().into_iter();
        outlets
            .filter_map(|(name, standing)| row(&self.node, name, &standing))
            .collect()
    }

    fn one(&self, name: &str) -> Result<OutletRow, Problem> {
        let mut rows = self.list().into_iter();
        rows.find(|row| row.name == name)
            .ok_or_else(|| unknown(name))
    }

    fn pause(&self, name: String, is_paused: bool) -> Asked<()> {
        let node = Arc::clone(&self.node);
        let is_known = self.outlets.list().iter().any(|(known, _)| *known == name);
        async move {
            if !is_known {
                return Err(unknown(&name));
            }
            let payload = if is_paused { "paused" } else { "" };
            let message = message(pause_topic(&name), payload.to_owned(), true);
            publish_internal(&node, vec![message], BUDGET).await?;
            tracing::info!(outlet = %name, is_paused, "the pause of an outlet is changed");
            Ok(())
        }
        .boxed()
    }
}

fn unknown(name: &str) -> Problem {
    let why = format!("no outlet is called {name}; GET /api/v1/outlets lists them");
    Problem::new(Kind::NotFound, why)
}

/// `None`: it has no definition, and is about to go.
fn row(node: &Node, name: String, standing: &Standing) -> Option<OutletRow> {
    let definition = standing.definition.as_deref()?;
    let is_here = standing.place == Place::Here;
    let (target, place) = match &definition.target {
        TargetDefinition::File { path, .. } => ("file", path.display().to_string()),
        TargetDefinition::Http(http) => ("http", http.url.clone()),
        TargetDefinition::Mqtt(mqtt) => ("mqtt", mqtt.url.clone()),
    };
    Some(OutletRow {
        name,
        state: state(standing),
        paused: is_here.then_some(standing.is_paused),
        node: match standing.place {
            Place::Here => Some(NodeId(node.store().node())),
            Place::At(other) => Some(other),
            Place::Nowhere => None,
        },
        target: target.to_owned(),
        place,
        filters: definition.filters.clone(),
        dead_letter: definition.dead_letter.clone(),
        figures: is_here.then(|| figures(node, definition, standing)),
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

fn figures(node: &Node, definition: &Definition, standing: &Standing) -> OutletFigures {
    let (_, inbox) = (node.store().inspect()).inbox(&definition.client_id());
    let inbox = inbox.found();
    let total = standing.total();
    OutletFigures {
        lag_messages: inbox.as_ref().map(|inbox| inbox.messages),
        lag_bytes: inbox.as_ref().map(|inbox| inbox.bytes),
        oldest_at: inbox
            .and_then(|inbox| inbox.oldest_since)
            .map(|since| At::unix_ms(since.0)),
        delivered: total.delivered.0,
        left_out: total.left_out.0,
        retries: total.retries.0,
        dead: total.dead.0,
        dead_letter_unclaimed: total.unclaimed.0,
        refused: total.refused.0,
        bridge_loop: total.looped.0,
        waiting_messages: standing.report.waiting_messages.0,
        attempt: standing.report.attempt.0,
        position: total.position,
        delivered_at: total.delivered_at.map(|at| At::unix_ms(at.0)),
        batch_ms: (total.batches.0 > 0)
            .then(|| total.delivering.0 as f64 / total.batches.0 as f64 / 1e3),
        last_error: standing.report.last_error.clone(),
        failing_s: standing
            .failing_since
            .map(|since| since.elapsed().as_secs()),
        process: standing.process.map(|process| process.0),
        starts: standing.starts as u64,
        last_end: standing.last_end.clone(),
    }
}
