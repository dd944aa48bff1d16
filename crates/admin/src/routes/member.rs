//! Which member of the cluster a request names: by its identifier or by what people call it.

use std::sync::Arc;

use serde_json::Value;

use super::reading::{wrong_field, wrong_parameter};
use crate::backend::Broker;
use crate::cluster::NodeId;
use crate::problem::{Kind, Problem};

/// Members that a problem lists.
const LISTED: usize = 64;

/// Why a text names no member.
enum Unknown {
    /// Several members have this name.
    Several,
    /// None has; these are there.
    None { accepted: String },
}

/// The member of the parameter `node`.
pub(super) fn parameter(
    broker: &Arc<dyn Broker>,
    text: Option<&str>,
) -> Result<Option<NodeId>, Problem> {
    let named = text.map(|text| {
        find(&broker.members(), text).map_err(|unknown| match unknown {
            Unknown::Several => several().with("parameter", "node"),
            Unknown::None { accepted } => wrong_parameter("node", text, &accepted),
        })
    });
    named.transpose()
}

/// The member of a part of the path.
pub(super) fn segment(broker: &Arc<dyn Broker>, text: &str) -> Result<NodeId, Problem> {
    find(&broker.members(), text).map_err(|unknown| match unknown {
        Unknown::Several => several(),
        Unknown::None { accepted } => {
            let why = format!("no node has this identifier or name; it is to be {accepted}");
            let problem = Problem::new(Kind::NotFound, why).with("kind", "node");
            problem.with("accepted", accepted)
        }
    })
}

/// The member of a field of the body.
pub(super) fn field(
    broker: &Arc<dyn Broker>,
    pointer: &str,
    text: &str,
) -> Result<NodeId, Problem> {
    find(&broker.members(), text).map_err(|unknown| match unknown {
        Unknown::Several => several().with("pointer", pointer),
        Unknown::None { accepted } => wrong_field(pointer, &Value::from(text), &accepted),
    })
}

fn several() -> Problem {
    let why = "several nodes have this name; their identifiers differ";
    Problem::new(Kind::Conflict, why).with("kind", "node")
}

fn find(members: &[(NodeId, String)], text: &str) -> Result<NodeId, Unknown> {
    let named = |(node, name): &&(NodeId, String)| {
        (name == text && !name.is_empty()) || text.parse() == Ok(*node)
    };
    let mut found = members.iter().filter(named);
    match (found.next(), found.next()) {
        (Some((node, _)), None) => Ok(*node),
        (Some(_), Some(_)) => Err(Unknown::Several),
        (None, _) => {
            let listed = members.iter().take(LISTED);
            let listed = listed.map(|(node, name)| match name.as_str() {
                "" => node.to_string(),
                name => format!("{name} ({node})"),
            });
            let mut listed: Vec<String> = listed.collect();
            if members.len() > LISTED {
                listed.push("one of the others".to_owned());
            }
            let accepted = format!("a member: {}", listed.join(", "));
            Err(Unknown::None { accepted })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_named_by_identifier_or_name_and_an_unknown_one_is_told_who_there_is() {
        let member = |node: u64, name: &str| (NodeId(node), name.to_owned());
        let members = [
            member(10, "mq-1"),
            member(11, "mq-2"),
            member(12, "mq-2"),
            member(13, ""),
        ];
        for (text, node) in [("mq-1", 10), ("a", 10), ("000000000000000b", 11), ("d", 13)] {
            assert_eq!(find(&members, text).ok(), Some(NodeId(node)), "{text}");
        }
        assert!(matches!(find(&members, "mq-2"), Err(Unknown::Several)));
        let Err(Unknown::None { accepted }) = find(&members[..2], "mq-9") else {
            panic!("there is no mq-9");
        };
        assert_eq!(
            accepted,
            "a member: mq-1 (000000000000000a), mq-2 (000000000000000b)"
        );
        // A node without a name is not named by nothing.
        assert!(find(&members, "").is_err());
        let many: Vec<_> = (0..100).map(|node| member(node + 256, "n")).collect();
        let Err(Unknown::None { accepted }) = find(&many, "x") else {
            panic!("there is no x");
        };
        assert!(accepted.ends_with(", one of the others"), "{accepted}");
    }
}
