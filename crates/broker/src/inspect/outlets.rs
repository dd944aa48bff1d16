//! What people are told of outlets.

use std::sync::Arc;

use admin::api::{At, OutletFigures, OutletRow, OutletState};
use admin::cluster::NodeId;
use admin::problem::{Kind, Problem};
use admin::{Asked, Outlets};
use futures_util::FutureExt as _;
use outlets::{Definition, Doing, TargetDefinition};

use super::state::Inspect;
use crate::outlets::{Place, Standing, pause};

/// The outlets of this node.
#[derive(Debug)]
pub(super) struct OwnOutlets(pub(super) Arc<Inspect>);

impl Outlets for OwnOutlets {
    fn list(&self) -> Vec<OutletRow> {
        let outlets = self.0.outlets.list().into_iter();
        outlets
            .filter_map(|(name, standing)| row(&self.0, name, &standing))
            .collect()
    }

    fn one(&self, name: &str) -> Result<OutletRow, Problem> {
        let mut rows = self.list().into_iter();
        rows.find(|row| row.name == name)
            .ok_or_else(|| unknown(name))
    }

    fn pause(&self, name: String, is_paused: bool) -> Asked<()> {
        let inspect = Arc::clone(&self.0);
        async move {
            if !inspect
                .outlets
                .list()
                .iter()
                .any(|(known, _)| *known == name)
            {
                return Err(unknown(&name));
            }
            pause(&inspect, &name, is_paused).await?;
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
fn row(inspect: &Inspect, name: String, standing: &Standing) -> Option<OutletRow> {
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
            Place::Here => Some(NodeId(inspect.node.store().node())),
            Place::At(node) => Some(NodeId(node)),
            Place::Nowhere => None,
        },
        target: target.to_owned(),
        place,
        filters: definition.filters.clone(),
        dead_letter: definition.dead_letter.clone(),
        figures: is_here.then(|| figures(inspect, definition, standing)),
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

fn figures(inspect: &Inspect, definition: &Definition, standing: &Standing) -> OutletFigures {
    let (_, inbox) = (inspect.node.store().inspect()).inbox(&definition.client_id());
    let inbox = inbox.found();
    let total = standing.total();
    OutletFigures {
        lag_messages: inbox.as_ref().map(|inbox| inbox.messages),
        lag_bytes: inbox.as_ref().map(|inbox| inbox.bytes),
        oldest_at: inbox
            .and_then(|inbox| inbox.oldest_since)
            .map(|since| At::unix_ms(since.0)),
        delivered: total.delivered,
        left_out: total.left_out,
        retries: total.retries,
        dead: total.dead,
        dead_letter_unclaimed: total.unclaimed,
        refused: total.refused,
        bridge_loop: total.looped,
        waiting_messages: standing.report.waiting_messages,
        attempt: standing.report.attempt,
        position: total.position,
        delivered_at: total.delivered_at_ms.map(At::unix_ms),
        batch_ms: (total.batches > 0)
            .then(|| total.delivering_us as f64 / total.batches as f64 / 1e3),
        last_error: standing.report.last_error.clone(),
        failing_s: standing
            .failing_since
            .map(|since| since.elapsed().as_secs()),
        process: standing.process,
        starts: standing.starts,
        last_end: standing.last_end.clone(),
    }
}
