//! What people are told of outlets: this node says what it knows (`own_outlets.rs`), and those that run others are asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use admin::api::OutletRow;
use admin::cluster::NodeId;
use admin::page::Missing;
use admin::problem::{Kind, Problem};
use admin::{Asked, Gathered, Outlets};
use futures_util::FutureExt as _;
use inspection::{Answer, MessagesAnswer, MessagesQuestion, OutletHere, Question};

use super::publishing::publish_internal;
use super::state::Inspect;
use super::wire::ToApi as _;
use super::{gather, own_outlets};
use crate::outlets::{message, pause_topic};

/// How long stores may take to keep a pause.
const BUDGET: Duration = Duration::from_secs(5);

/// The outlets and inlets of the cluster, as the configuration of this node has them.
#[derive(Debug)]
pub(super) struct AllOutlets(pub(super) Arc<Inspect>);

impl AllOutlets {
    /// Asks the nodes that run some of these outlets.
    async fn ask(&self, rows: &[OutletRow], budget: Duration) -> (Said, Vec<Missing>) {
        let inspect = &self.0;
        let mut others: Vec<NodeId> = rows
            .iter()
            .filter(|row| row.figures.is_none())
            .filter_map(|row| row.node)
            .collect();
        others.sort_unstable();
        others.dedup();
        let nodes = gather::nodes(&inspect.control.status(), &inspect.name);
        let question = |_| Question::Messages(MessagesQuestion::Outlets);
        let answers = gather::some(inspect, &nodes, &others, question, budget).await;
        let (parts, partial) = gather::sort(answers, "outlets", |answer| match answer {
            Answer::Messages(MessagesAnswer::Outlets(here)) => Some(here),
            _ => None,
        });
        let said = parts.into_iter().map(|(node, _, here)| (node, here));
        (said.collect(), partial)
    }
}

impl Outlets for AllOutlets {
    fn list(&self, budget: Duration) -> Asked<Gathered<Vec<OutletRow>>> {
        let asking = Self(Arc::clone(&self.0));
        async move {
            let mut all = own_outlets::list(&asking.0.node, &asking.0.outlets);
            let (said, partial) = asking.ask(&all, budget).await;
            for row in &mut all {
                complete(row, &said);
            }
            Ok(Gathered { all, partial })
        }
        .boxed()
    }

    fn pause(&self, name: String, is_paused: bool) -> Asked<()> {
        let node = Arc::clone(&self.0.node);
        let mut known = self.0.outlets.list().into_iter();
        let is_known = known.any(|(known, _)| known == name);
        async move {
            if !is_known {
                let why =
                    format!("no outlet or inlet is called {name}; GET /api/v1/outlets lists them");
                return Err(Problem::new(Kind::NotFound, why));
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

/// What other nodes say of the outlets that they run.
type Said = BTreeMap<NodeId, Vec<OutletHere>>;

/// Adds to a row what the node has said that runs its outlet. A node that has another configuration, or has just lost the outlet, says
/// nothing of it.
fn complete(row: &mut OutletRow, said: &Said) {
    let here = row.node.and_then(|node| said.get(&node));
    let mut here = here.into_iter().flatten();
    if let Some(here) = here.find(|here| here.name == row.name)
        && row.figures.is_none()
    {
        row.state = here.state.to_api();
        row.paused = Some(here.is_paused);
        row.figures = Some(here.figures.clone().to_api());
    }
}
