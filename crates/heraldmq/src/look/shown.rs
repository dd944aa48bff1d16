//! How answers are shown: lists page by page, who has not answered, and exit codes.

use std::process::ExitCode;

use admin::page::{Missing, Page};
use serde::de::DeserializeOwned;
use serde_json::Value;
use text_table::Table;

use crate::failure::{Failure, complain};
use crate::http_port::{HttpPort, parse};
use crate::output::print;

/// Not all nodes have answered.
const IN_PART: u8 = 4;

pub(super) const EXIT_CODES: &str = "\
Exit codes: 0 found; 1 refused, or the node does not answer; 2 wrong command line; 3 not found; 4 answered in part.";

/// How an answer is shown.
#[derive(clap::Args)]
pub(crate) struct Shown {
    /// Print the answer as it came, JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Leave the header of the table out.
    #[arg(long)]
    pub(super) no_header: bool,
}

/// How much of a list is shown.
#[derive(clap::Args)]
pub(crate) struct Walk {
    /// The most rows of a page, 1 to 500.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    /// All pages, one after the other.
    #[arg(long)]
    all: bool,
}

/// Prints one page of a list, or all of them.
pub(super) fn print_list<T: DeserializeOwned>(
    node: &HttpPort,
    path: &str,
    query: Vec<(&str, String)>,
    (walk, shown): (&Walk, &Shown),
    table: impl Fn(&[T]) -> Table,
) -> Result<ExitCode, Failure> {
    let mut after: Option<String> = None;
    let mut partial: Vec<Missing> = Vec::new();
    loop {
        let mut query = query.clone();
        query.push(("limit", walk.limit.to_string()));
        if let Some(after) = &after {
            query.push(("after", after.clone()));
        }
        let text = node.get_with(path, &query)?;
        let page: Page<T> = parse(&text)?;
        let is_first = after.is_none();
        if shown.json {
            print(&(text + "\n"))?;
        } else if !page.items.is_empty() || is_first {
            let table = table(&page.items);
            let table = match shown.no_header || !is_first {
                true => table.without_header(),
                false => table,
            };
            print(&table.to_string())?;
        }
        for missing in page.partial {
            if !partial.contains(&missing) {
                partial.push(missing);
            }
        }
        after = page.next;
        if after.is_none() || !walk.all {
            break;
        }
    }
    if after.is_some() {
        complain("more follows: --all shows it");
    }
    Ok(exit_code(&partial))
}

/// Prints a list that has one page.
pub(super) fn print_whole<T: DeserializeOwned>(
    node: &HttpPort,
    path: &str,
    query: &[(&str, String)],
    shown: &Shown,
    table: impl Fn(&[T]) -> Table,
) -> Result<ExitCode, Failure> {
    let text = node.get_with(path, query)?;
    let page: Page<T> = parse(&text)?;
    if shown.json {
        print(&(text + "\n"))?;
    } else {
        let table = table(&page.items);
        let table = match shown.no_header {
            true => table.without_header(),
            false => table,
        };
        print(&table.to_string())?;
    }
    Ok(exit_code(&page.partial))
}

/// Says who has not answered.
pub(super) fn exit_code(partial: &[Missing]) -> ExitCode {
    for missing in partial {
        let node = match (missing.node_name.as_str(), missing.node) {
            ("", Some(node)) => node.to_string(),
            ("", None) => missing.missing.join(" "),
            (name, _) => name.to_owned(),
        };
        complain(&format!("partial: {node} ({})", missing.reason.name()));
    }
    match partial {
        [] => ExitCode::SUCCESS,
        _ => ExitCode::from(IN_PART),
    }
}

/// The path of a client, if its identifier fits into one unchanged.
pub(super) fn path_of(client_id: &str) -> Option<String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'~' | b'-');
    let begins = client_id.bytes().next().is_some_and(|b| b != b'.');
    (begins && client_id.len() <= 256 && client_id.bytes().all(is_plain))
        .then(|| format!("/api/v1/clients/{client_id}"))
}

/// The answer to a question about one client.
pub(super) fn get_client(node: &HttpPort, client_id: &str) -> Result<String, Failure> {
    match path_of(client_id) {
        Some(path) => node.get(&path),
        None => {
            let body: Value = serde_json::json!({ "client_id": client_id });
            node.post("/api/v1/lookup", &body)
        }
    }
}
