//! Which rules of the rule file concern a client, and what rules would say that are not saved.
//!
//! The nodes say who the client is, by questions that exist for other answers; the rules are those of the asked node.
//!
//! Deliberately absent: rules that came with a login, which only the loop of the client has.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use admin::api::{AclAnswer, AclQuestion, AclRule, AclRules, AclSubject, DecidedBy, KnownBy};
use admin::page::Missing;
use admin::problem::{Kind, Problem};
use authorization::{Action, Client, Mistake, Rules};
use broker_core::Authorization;
use serde_json::{Value, json};

use super::rows;
use super::wire::ToApi as _;

/// The most rules of an answer.
const MOST: usize = 500;

/// As what a client is judged.
pub(super) struct Judged {
    user: Option<String>,
    address: Option<IpAddr>,
    known_by: KnownBy,
    is_superuser: bool,
    partial: Vec<Missing>,
}

impl Judged {
    /// As the question says, if it names a user or an address.
    pub(super) fn by_question(subject: &AclSubject) -> Option<Self> {
        (subject.user.is_some() || subject.address.is_some()).then(|| Self {
            user: subject.user.clone(),
            address: subject.address.as_ref().and_then(|ip| ip.parse().ok()),
            known_by: KnownBy::Question,
            is_superuser: false,
            partial: Vec::new(),
        })
    }

    /// As the nodes know it. `said`: the answer to [`who`]; `address`: that of its connection, with a port.
    pub(super) fn by_nodes(said: AclAnswer, address: Option<&str>, partial: Vec<Missing>) -> Self {
        Self {
            address: address.and_then(ip),
            user: said.user,
            known_by: said.known_by,
            is_superuser: said.verdict.by == DecidedBy::Superuser,
            partial,
        }
    }
}

/// A question whose answer says who a client is, and whether it is a superuser: that decides whatever the topic is.
pub(super) fn who(client_id: &str) -> AclQuestion {
    AclQuestion {
        client_id: client_id.to_owned(),
        action: Action::Publish.as_str().to_owned(),
        topic: "any".to_owned(),
        user: None,
        address: None,
        rules: None,
    }
}

/// Rules that are not saved, in the place of those of the file.
pub(super) fn unsaved(text: &str, saved: &Authorization) -> Result<Authorization, Problem> {
    let rules = Rules::parse(text).map_err(|mistakes| {
        let first = mistakes.first().map_or(String::new(), Mistake::to_string);
        let why = format!("`rules` cannot be read: {first}");
        let mistakes: Vec<Value> = mistakes
            .iter()
            .map(|Mistake { line, reason }| json!({ "line": line, "reason": reason }))
            .collect();
        let problem = Problem::new(Kind::InvalidBody, why).with("pointer", "/rules");
        problem.with("mistakes", mistakes)
    })?;
    Ok(Authorization::new(saved.no_match(), false, 0, rules).with_list(Arc::clone(saved.list())))
}

/// What rules say that are not saved, of what the nodes have said by those of the file. What came with a login counts before
/// either, and so do the rules of the control store for everybody.
pub(super) fn judge(
    unsaved: &Authorization,
    said: AclAnswer,
    address: Option<&str>,
    (action, topic): (Action, &str),
) -> AclAnswer {
    match said.verdict.by {
        DecidedBy::Superuser | DecidedBy::Login | DecidedBy::List => said,
        DecidedBy::File | DecidedBy::NoMatch => {
            let client = Client {
                client_id: &said.client_id,
                username: said.user.as_deref(),
                address: address.and_then(ip),
            };
            let verdict = unsaved.explain(&client, action, topic);
            let verdict = rows::verdict(verdict).to_api();
            AclAnswer { verdict, ..said }
        }
    }
}

/// The first rules that concern a client.
pub(super) fn of_client(
    authorization: &Authorization,
    client_id: String,
    judged: Judged,
) -> AclRules {
    let client = Client {
        client_id: &client_id,
        username: judged.user.as_deref(),
        address: judged.address,
    };
    let of = |by| move |(line, text)| (by, line, text);
    let list = authorization.list().concerning(&client);
    let file = authorization.rules().concerning(&client);
    let list = list.map(of(DecidedBy::List));
    let mut found = list.chain(file.map(of(DecidedBy::File)));
    let first = found.by_ref().take(MOST);
    let rules = first.map(|(by, line, text): (_, u32, _)| AclRule {
        by,
        line: line.into(),
        text,
    });
    let rules = rules.collect();
    let more = found.next().is_some();
    drop(found);
    AclRules {
        rules,
        more,
        no_match: authorization.no_match().as_str().to_owned(),
        known_by: judged.known_by,
        superuser: judged.is_superuser,
        address: judged.address.map(|address| address.to_string()),
        partial: judged.partial,
        user: judged.user,
        client_id,
    }
}

/// The address of a connection without its port; `None`: it came by a Unix domain socket.
fn ip(address: &str) -> Option<IpAddr> {
    let with_port = address.parse().map(|address: SocketAddr| address.ip());
    with_port.or_else(|_| address.parse()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_an_address_unless_it_came_by_a_socket_file() {
        for (shown, expected) in [
            ("10.0.0.7:40000", Some("10.0.0.7")),
            ("[2001:db8::1]:40000", Some("2001:db8::1")),
            ("10.0.0.7", Some("10.0.0.7")),
            ("unix", None),
        ] {
            assert_eq!(ip(shown), expected.map(|ip| ip.parse().unwrap()), "{shown}");
        }
    }
}
