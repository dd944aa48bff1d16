//! `/settings` and `/stats`: what nodes are configured with, and what they have counted.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;

use super::input::{BudgetParams, Params, budget, time};
use super::member;
use crate::api::{History, Setting, SettingRow, Stats};
use crate::api_state::Turn;
use crate::backend::Broker;
use crate::page::Page;
use crate::problem::Problem;
use crate::rights::{Caller, Role};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct SettingsQuery {
    /// What the names of options begin with, such as `limits.session`.
    prefix: Option<String>,
    /// The node whose values are the first, by its identifier or name; without it the one that answers.
    node: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

/// What a node is configured with, who said so, and where other nodes differ.
#[utoipa::path(get, path = "/api/v1/settings", operation_id = "list_settings", tag = "cluster", params(SettingsQuery), responses((status = 200, description = "The options", body = Page<SettingRow>)))]
pub(super) async fn list(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<SettingsQuery>,
) -> Result<Json<Page<SettingRow>>, Problem> {
    let node = query.node.as_deref();
    let node = member::parameter(&broker, node)?;
    let budget = budget(query.budget_ms.as_deref())?;
    let prefix = query.prefix.unwrap_or_default();
    let mut settings = broker.settings(node, prefix, budget).await?.page();
    if caller.role < Role::Operator {
        settings.items.iter_mut().for_each(leave_paths_out);
    }
    Ok(Json(settings))
}

/// Viewers are not told where nodes have their files: `…` stands for the paths, and a place in a configuration has the name of its
/// file alone.
fn leave_paths_out(row: &mut SettingRow) {
    let is_path = is_path(row.key.rsplit('.').next().unwrap_or_default());
    let hide = |text: &mut String| {
        *text = match is_path && text != "null" {
            true => HIDDEN.to_owned(),
            false => without_paths(text),
        };
    };
    let elsewhere = row.differs.iter_mut().map(|differs| &mut differs.setting);
    for setting in elsewhere.chain([&mut row.setting]) {
        let Setting {
            value,
            place,
            at_restart,
            ..
        } = setting;
        value.iter_mut().chain(at_restart).for_each(hide);
        if let Some(place) = place
            && let Some((_, name)) = place.rsplit_once('/')
        {
            *place = name.to_owned();
        }
    }
}

/// What stands for a path.
const HIDDEN: &str = "…";

/// Whether the value of an option of this name is a path of a file or folder.
fn is_path(name: &str) -> bool {
    matches!(name, "file" | "path" | "dataDir") || name.ends_with("File")
}

/// A value in which options stand, such as a list of listeners, without their paths.
fn without_paths(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(": ") {
        shown.push_str(before);
        shown.push_str(": ");
        let is_name = |c: char| c.is_ascii_alphanumeric();
        let name = before.rsplit(|c| !is_name(c)).next().unwrap_or_default();
        let quoted = behind.strip_prefix('"');
        let end = match quoted {
            // Behind the quote that is not escaped.
            Some(quoted) => {
                let mut quotes = quoted.match_indices('"').map(|(at, _)| at);
                let end = quotes.find(|at| !quoted[..*at].ends_with('\\'));
                end.map_or(behind.len(), |at| at + 2)
            }
            None => behind.find([',', '}', ']']).unwrap_or(behind.len()),
        };
        let (value, behind) = behind.split_at(end);
        if is_path(name) && value != "null" {
            shown.push_str(HIDDEN);
            rest = behind;
        } else if quoted.is_some() {
            shown.push_str(value);
            rest = behind;
        } else {
            // Further options may stand in it.
            rest = &rest[before.len() + 2..];
        }
    }
    shown.push_str(rest);
    shown
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// Only samples that end after this time, RFC 3339, such as the `end` of an earlier answer.
    since: Option<String>,
    /// How long the answer may take, 50 to 5000 ms; 1000 if it is not given. What has not come then is in `partial`.
    #[param(value_type = Option<u64>, minimum = 50, maximum = 5000)]
    budget_ms: Option<String>,
}

impl HistoryQuery {
    pub(super) fn since(&self) -> Result<Option<u64>, Problem> {
        time("since", self.since.as_deref())
    }

    pub(super) fn budget(&self) -> Result<Duration, Problem> {
        budget(self.budget_ms.as_deref())
    }
}

/// The last hour of each node, a sample for each 10 s; nodes keep it in memory.
#[utoipa::path(get, path = "/api/v1/stats/history", operation_id = "get_stats_history", tag = "cluster", params(HistoryQuery), responses((status = 200, description = "The samples of each node", body = History)))]
pub(super) async fn history(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(query): Params<HistoryQuery>,
) -> Result<Json<History>, Problem> {
    Ok(Json(broker.history(query.since()?, query.budget()?).await?))
}

/// What there is now, and what has happened since the nodes have started.
#[utoipa::path(get, path = "/api/v1/stats", operation_id = "get_stats", tag = "cluster", params(BudgetParams), responses((status = 200, description = "The counts of each node", body = Stats)))]
pub(super) async fn stats(
    _turn: Turn,
    State(broker): State<Arc<dyn Broker>>,
    Params(budget): Params<BudgetParams>,
) -> Result<Json<Stats>, Problem> {
    Ok(Json(broker.stats(budget.budget()?).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_left_out_of_values_with_options_in_them() {
        for (text, shown) in [
            ("null", "null"),
            ("7", "7"),
            (
                "[{host: a, path: /run/x, mode: 7}]",
                "[{host: a, path: …, mode: 7}]",
            ),
            (
                r#"[{ssl: {keyFile: "/a b\"c: d", certFile: null}, wsPath: "/mqtt"}]"#,
                r#"[{ssl: {keyFile: …, certFile: null}, wsPath: "/mqtt"}]"#,
            ),
            (
                r#"[{url: "http://a/file: b", file: x}]"#,
                r#"[{url: "http://a/file: b", file: …}]"#,
            ),
        ] {
            assert_eq!(without_paths(text), shown);
        }
    }
}
