//! How answers are shown: lists page by page, who has not answered, and exit codes.

use std::process::ExitCode;

use admin::page::{Missing, Page};
use serde::de::DeserializeOwned;
use serde_json::Value;
use text_table::Table;

use crate::failure::{Failure, complain};
use crate::http_port::{HttpPort, parse};
use crate::output::{fitted, print};

/// Not all nodes have answered.
const IN_PART: u8 = 4;

pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 found; 1 refused, or the node does not answer; 2 wrong command line; 3 not found; 4 answered in part.";

/// How an answer is shown.
#[derive(clap::Args)]
pub(crate) struct Shown {
    /// Print the broker's answer unchanged, as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Omit the header of the table.
    #[arg(long)]
    pub(crate) no_header: bool,
    /// Print cells whole. Without it, long cells are cut and end with `…`: on a terminal to its width, elsewhere to 200 characters.
    #[arg(long)]
    pub(crate) wide: bool,
}

impl Shown {
    /// The table as it is printed.
    pub(crate) fn fit(&self, table: Table, has_header: bool) -> Table {
        let table = match self.no_header || !has_header {
            true => table.without_header(),
            false => table,
        };
        fitted(table, self.wide)
    }
}

/// What a list has, for the sentence about an empty one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    /// Such as `clients`.
    nouns: &'static str,
    /// Whether options leave some of them out.
    is_filtered: bool,
    /// What to say if the table leaves out all rows of the answer.
    when_hidden: &'static str,
}

impl Listed {
    /// All of them, by what they are called.
    pub(crate) fn all(nouns: &'static str) -> Self {
        Self {
            nouns,
            is_filtered: false,
            when_hidden: "",
        }
    }

    /// Those that options ask for, if they ask for some.
    pub(crate) fn only_some(self, is_filtered: bool) -> Self {
        Self {
            is_filtered,
            ..self
        }
    }

    pub(crate) fn when_hidden(self, when_hidden: &'static str) -> Self {
        Self {
            when_hidden,
            ..self
        }
    }

    /// The sentence about a list without rows, of which `items` came. `ends`: nothing follows.
    fn nothing(self, items: usize, ends: bool, partial: &[Missing]) -> String {
        if items > 0 && !self.when_hidden.is_empty() {
            return self.when_hidden.to_owned();
        }
        let mut sentence = match self.is_filtered {
            true => format!("no {} match", self.nouns),
            false => format!("there are no {}", self.nouns),
        };
        if !ends {
            sentence += " on this page";
        }
        if !partial.is_empty() {
            sentence += " on the nodes that have answered";
        }
        sentence
    }
}

/// How much of a list is shown.
#[derive(clap::Args)]
pub(crate) struct Walk {
    /// The maximum number of rows of a page, 1 to 500.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    /// Print all pages.
    #[arg(long)]
    all: bool,
}

/// Prints one page of a list, or all of them.
pub(crate) fn print_list<T: DeserializeOwned>(
    node: &HttpPort,
    path: &str,
    query: Vec<(&str, String)>,
    (walk, shown): (&Walk, &Shown),
    listed: Listed,
    table: impl Fn(&[T]) -> Table,
) -> Result<ExitCode, Failure> {
    let mut after: Option<String> = None;
    let mut partial: Vec<Missing> = Vec::new();
    let (mut items, mut rows) = (0, 0);
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
            rows += table.rows().len();
            print(&shown.fit(table, is_first).to_string())?;
        }
        items += page.items.len();
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
    if rows == 0 && !shown.json {
        complain(&listed.nothing(items, after.is_none(), &partial));
    }
    if after.is_some() {
        complain("more follows: --all shows it");
    }
    Ok(exit_code(&partial))
}

/// Prints a list that has one page.
pub(crate) fn print_whole<T: DeserializeOwned>(
    node: &HttpPort,
    path: &str,
    query: &[(&str, String)],
    shown: &Shown,
    listed: Listed,
    table: impl Fn(&[T]) -> Table,
) -> Result<ExitCode, Failure> {
    let text = node.get_with(path, query)?;
    let page: Page<T> = parse(&text)?;
    if shown.json {
        print(&(text + "\n"))?;
    } else {
        let table = table(&page.items);
        let rows = table.rows().len();
        print(&shown.fit(table, true).to_string())?;
        if rows == 0 {
            complain(&listed.nothing(page.items.len(), true, &page.partial));
        }
    }
    Ok(exit_code(&page.partial))
}

/// Says who has not answered.
pub(crate) fn exit_code(partial: &[Missing]) -> ExitCode {
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
pub(crate) fn path_of(client_id: &str) -> Option<String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'~' | b'-');
    let begins = client_id.bytes().next().is_some_and(|b| b != b'.');
    (begins && client_id.len() <= 256 && client_id.bytes().all(is_plain))
        .then(|| format!("/api/v1/clients/{client_id}"))
}

/// The answer to a question about one client.
pub(crate) fn get_client(node: &HttpPort, client_id: &str) -> Result<String, Failure> {
    match path_of(client_id) {
        Some(path) => node.get(&path),
        None => {
            let body: Value = serde_json::json!({ "client_id": client_id });
            node.post("/api/v1/lookup", &body)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_says_what_is_true() {
        let missing: Vec<Missing> =
            parse(r#"[{"node": null, "node_name": "b", "reason": "down", "missing": []}]"#)
                .unwrap();
        let clients = Listed::all("clients");
        assert_eq!(clients.nothing(0, true, &[]), "there are no clients");
        assert_eq!(
            clients.only_some(true).nothing(0, false, &[]),
            "no clients match on this page"
        );
        assert_eq!(
            clients.nothing(0, true, &missing),
            "there are no clients on the nodes that have answered"
        );
        let settings = Listed::all("settings").when_hidden("all are defaults");
        assert_eq!(settings.nothing(3, true, &[]), "all are defaults");
        assert_eq!(settings.nothing(0, true, &[]), "there are no settings");
    }
}
