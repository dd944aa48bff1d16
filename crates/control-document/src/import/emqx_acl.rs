//! `acl.conf` of EMQX: rules as terms of Erlang, of which the first that matches decides, as here.

use std::net::IpAddr;

use super::ImportError;
use super::erlang::{self, Term};
use super::words::{self, Effect, Percent};
use crate::document::Document;
use crate::imported::Imported;

/// The lines that one rule may become by `'or'`.
const MOST: usize = 64;

/// Reads the rules of EMQX 5: `{allow|deny, WHO, ACTION, TOPICS}.` and `{allow|deny, all}.` The document has the list for everybody, in
/// the order of the file, with a line or several for each rule. `subscribe` here decides on deliveries too.
///
/// Left out and said: conditions, options of actions and topics that have no equal. A rule without any topic left is left out.
///
/// # Errors
/// The first line that is no term of Erlang, or no rule.
pub fn emqx_acl(text: &str) -> Result<Imported, ImportError> {
    let mut imported = Imported::default();
    let mut rules = Vec::new();
    for form in erlang::parse(text)? {
        let at = format!("line {}", form.line);
        let rule = rule(&form.term).map_err(|reason| ImportError::new(at.clone(), reason))?;
        rules.extend(lines(&at, &rule, &mut imported));
    }
    imported.document = Document {
        rules: Some(rules),
        ..Document::default()
    };
    Ok(imported)
}

struct Rule<'a> {
    effect: Effect,
    who: &'a Term,
    action: &'a Term,
    /// `None`: all but those that begin with `$`.
    topics: Option<&'a [Term]>,
}

fn rule(term: &Term) -> Result<Rule<'_>, String> {
    let shape = || {
        "not {allow, …} or {deny, …} with all, or with who, action and a list of topics".to_owned()
    };
    let Term::Tuple(parts) = term else {
        return Err(shape());
    };
    let (effect, parts) = match parts.split_first() {
        Some((Term::Atom(word), parts)) if word == "allow" => (Effect::Allow, parts),
        Some((Term::Atom(word), parts)) if word == "deny" => (Effect::Deny, parts),
        _ => return Err(shape()),
    };
    match parts {
        [all] if is_atom(all, "all") => Ok(Rule {
            effect,
            who: all,
            action: all,
            topics: None,
        }),
        [who, action, Term::List(topics)] => Ok(Rule {
            effect,
            who,
            action,
            topics: Some(topics),
        }),
        _ => Err(shape()),
    }
}

fn is_atom(term: &Term, word: &str) -> bool {
    matches!(term, Term::Atom(atom) if atom == word)
}

fn lines(at: &str, rule: &Rule<'_>, imported: &mut Imported) -> Vec<String> {
    let effect = rule.effect;
    let read = action(rule.action, effect).and_then(|action| Ok((action, who(rule.who)?)));
    let (action, alternatives) = match read {
        Ok(read) => read,
        Err(why) => {
            imported.leave_out(at, effect.left_out(&why));
            return Vec::new();
        }
    };
    let filters = match rule.topics {
        // As there, `#` does not match what begins with `$`.
        None => vec!["#".to_owned()],
        Some(topics) => topics
            .iter()
            .filter_map(|topic| {
                let filter = filter(topic);
                let why = |why: String| imported.leave_out(at, effect.left_out(&why));
                filter.map_err(why).ok()
            })
            .collect(),
    };
    if filters.is_empty() {
        imported.leave_out(at, "no topic is left, so the rule matches nothing");
    }
    let lines = alternatives.iter().flat_map(|conditions| {
        let who = match conditions.is_empty() {
            true => "all".to_owned(),
            false => conditions.join(" and "),
        };
        words::lines(&format!("{} {who} {action}", effect.as_str()), &filters)
    });
    lines.collect()
}

/// The word for an action.
fn action(term: &Term, effect: Effect) -> Result<&'static str, String> {
    let unknown = || "an action that is none of publish, subscribe, all".to_owned();
    let (word, options) = match term {
        Term::Atom(word) => (word, &[][..]),
        Term::Tuple(parts) => match parts.as_slice() {
            [Term::Atom(word), Term::List(options)] => (word, options.as_slice()),
            _ => return Err(unknown()),
        },
        _ => return Err(unknown()),
    };
    let action = match word.as_str() {
        "publish" => "publish",
        "subscribe" => "subscribe",
        "all" => "all",
        _ => return Err(unknown()),
    };
    let mut retain = None;
    for option in options {
        match option {
            Term::Tuple(parts) => match parts.as_slice() {
                [Term::Atom(name), Term::Atom(value)] if name == "retain" && value == "all" => {}
                [Term::Atom(name), Term::Atom(value)] if name == "retain" => {
                    retain = Some(value == "true");
                }
                [Term::Atom(name), _] if name == "qos" => {
                    return Err("rules do not depend on the QoS".to_owned());
                }
                _ => return Err("an option of an action that is not known".to_owned()),
            },
            _ => return Err("an option of an action that is not known".to_owned()),
        }
    }
    match (retain, effect, action) {
        (None, ..) => Ok(action),
        (Some(true), Effect::Deny, "publish") => Ok("retain"),
        (Some(true), Effect::Deny, "all") => Ok("retain,subscribe"),
        _ => Err("a rule can deny to have messages retained, and cannot allow only that or deny all but that".to_owned()),
    }
}

/// Which clients: any of these conjunctions of conditions; one without conditions holds for all clients.
fn who(term: &Term) -> Result<Vec<Vec<String>>, String> {
    if is_atom(term, "all") {
        return Ok(vec![Vec::new()]);
    }
    let unknown = || "a condition that is not known to this version".to_owned();
    let Term::Tuple(parts) = term else {
        return Err(unknown());
    };
    let [Term::Atom(word), value] = parts.as_slice() else {
        return Err(unknown());
    };
    let condition = match (word.as_str(), value) {
        ("user" | "username", value) => format!("user {}", name(value)?),
        ("client" | "clientid", value) => format!("client {}", name(value)?),
        ("ipaddr", Term::Text(text)) => format!("address {}", network(text)?),
        ("ipaddrs", Term::List(texts)) => {
            let networks = texts.iter().map(|text| match text {
                Term::Text(text) => network(text),
                _ => Err("an address that is no string".to_owned()),
            });
            let networks: Vec<String> = networks.collect::<Result<_, _>>()?;
            if networks.is_empty() {
                return Err("a list of no addresses matches no client".to_owned());
            }
            format!("address {}", networks.join(","))
        }
        ("and", Term::List(parts)) => return and(parts),
        ("or", Term::List(parts)) => return or(parts),
        _ => return Err(format!("the condition {word:?} has no equal")),
    };
    Ok(vec![vec![condition]])
}

fn or(parts: &[Term]) -> Result<Vec<Vec<String>>, String> {
    let mut all = Vec::new();
    for part in parts {
        all.extend(who(part)?);
        limit(&all)?;
    }
    match all.is_empty() {
        true => Err("an 'or' of nothing matches no client".to_owned()),
        false => Ok(all),
    }
}

fn and(parts: &[Term]) -> Result<Vec<Vec<String>>, String> {
    let mut all = vec![Vec::new()];
    for part in parts {
        let alternatives = who(part)?;
        let both = |one: &Vec<String>| {
            let one = one.clone();
            let others = alternatives.iter();
            others.map(move |other| [one.as_slice(), other].concat())
        };
        all = all.iter().flat_map(both).collect();
        limit(&all)?;
    }
    Ok(all)
}

/// That not too many lines come of a rule, and none gets too long.
fn limit(all: &[Vec<String>]) -> Result<(), String> {
    let longest = all.iter().map(Vec::len).max().unwrap_or(0);
    match all.len() <= MOST && longest <= MOST {
        true => Ok(()),
        false => Err(format!(
            "'and' and 'or' would become too many lines or conditions: {MOST} is the most"
        )),
    }
}

/// The word for a name, or for the names that a regular expression matches.
fn name(term: &Term) -> Result<String, String> {
    match term {
        Term::Text(text) => words::name(text),
        Term::Tuple(parts) => match parts.as_slice() {
            [Term::Atom(re), Term::Text(text)] if re == "re" => {
                let pattern = pattern(text).ok_or_else(|| {
                    format!("the regular expression {text:?} is more than a text, ^, $ and .*")
                })?;
                words::pattern(&pattern)
            }
            _ => Err("a name that is neither a string nor {re, …}".to_owned()),
        },
        _ => Err("a name that is neither a string nor {re, …}".to_owned()),
    }
}

/// The pattern with `*` that matches what a regular expression does.
fn pattern(expression: &str) -> Option<String> {
    let (begin, mut rest) = match expression.strip_prefix('^') {
        Some(rest) => ("", rest),
        None => ("*", expression),
    };
    let mut pattern = begin.to_owned();
    loop {
        if let Some(behind) = rest.strip_prefix(".*") {
            pattern.push('*');
            rest = behind;
            continue;
        }
        let mut characters = rest.chars();
        match characters.next() {
            None => {
                pattern.push('*');
                return Some(pattern);
            }
            Some('$') if characters.as_str().is_empty() => return Some(pattern),
            Some('\\') => match characters.next()? {
                // One that is a letter or a digit means something, and `*` would here.
                next if next.is_alphanumeric() || next == '*' => return None,
                next => pattern.push(next),
            },
            Some('.' | '[' | ']' | '(' | ')' | '{' | '}' | '|' | '?' | '*' | '+' | '^' | '$') => {
                return None;
            }
            Some(next) => {
                // What repeats it, or makes it optional, is one of the characters above.
                pattern.push(next);
            }
        }
        rest = characters.as_str();
    }
}

/// A network without bits behind its prefix, as EMQX takes it.
fn network(text: &str) -> Result<String, String> {
    let bad = || format!("{text:?} is no address or network");
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| bad())?;
    let Some(prefix) = prefix else {
        return Ok(address.to_string());
    };
    if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let prefix: u32 = prefix.parse().map_err(|_| bad())?;
    let address = match address {
        IpAddr::V4(v4) if prefix <= 32 => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) if prefix <= 128 => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
        _ => return Err(bad()),
    };
    Ok(format!("{address}/{prefix}"))
}

fn filter(term: &Term) -> Result<String, String> {
    match term {
        Term::Text(text) => match text.strip_prefix("eq ") {
            Some(text) => words::exact(text, Percent::Text),
            None => words::filter(&placeholders(text)?, Percent::Names),
        },
        Term::Tuple(parts) => match parts.as_slice() {
            [Term::Atom(eq), Term::Text(text)] if eq == "eq" => words::exact(text, Percent::Text),
            _ => Err("a topic that is neither a string nor {eq, …}".to_owned()),
        },
        _ => Err("a topic that is neither a string nor {eq, …}".to_owned()),
    }
}

/// A topic filter with `%c` and `%u` for the placeholders of EMQX.
fn placeholders(text: &str) -> Result<String, String> {
    let text = text
        .replace("${clientid}", "%c")
        .replace("${username}", "%u");
    match text.contains("${") {
        true => Err(format!(
            "{text:?}: of placeholders only ${{clientid}} and ${{username}} have an equal"
        )),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<String> {
        let imported = emqx_acl(text).unwrap();
        assert_eq!(imported.left_out, []);
        imported.document.rules.unwrap()
    }

    fn left_out(text: &str) -> String {
        let imported = emqx_acl(text).unwrap();
        assert_eq!(
            imported.document.rules.unwrap(),
            Vec::<String>::new(),
            "{text}"
        );
        imported.left_out[0].why.clone()
    }

    #[test]
    fn rules_become_lines_in_their_order() {
        let text = r##"
            {allow, {username, {re, "^dash"}}, subscribe, ["$SYS/#"]}.
            {deny, all, subscribe, ["$SYS/#", {eq, "#"}, "eq +/#"]}.
            {allow, {'and', [{clientid, "gw"}, {ipaddr, "10.1.2.3/16"}]}, publish, ["g/${clientid}/#"]}.
            {allow, {'or', [{user, "a"}, {ipaddrs, ["::1", "10.0.0.0/8"]}]}, all, [<<"x y">>]}.
            {deny, all, {publish, [{retain, true}]}, ["r"]}.
            {allow, all}.
        "##;
        assert_eq!(
            rules(text),
            [
                r#"allow user "dash*" subscribe $SYS/#"#,
                "deny all subscribe $SYS/# eq:# eq:+/#",
                r#"allow client "gw" and address 10.1.0.0/16 publish g/%c/#"#,
                r#"allow user "a" all "x y""#,
                r#"allow address ::1,10.0.0.0/8 all "x y""#,
                "deny all retain r",
                "allow all all #",
            ]
        );
    }

    #[test]
    fn regular_expressions_are_patterns_where_they_can_be() {
        for (expression, expected) in [
            ("^dash", Some("dash*")),
            ("^dash$", Some("dash")),
            ("dash", Some("*dash*")),
            ("-x$", Some("*-x")),
            ("^a.*b$", Some("a*b")),
            ("^a\\.b", Some("a.b*")),
            ("^a.b", None),
            ("^a+", None),
            ("^(a|b)", None),
            ("^a\\d", None),
            ("^a\\*", None),
            ("^a$b", None),
            ("^a\\", None),
        ] {
            assert_eq!(pattern(expression).as_deref(), expected, "{expression}");
        }
    }

    #[test]
    fn what_has_no_equal_is_left_out_and_said() {
        for (text, part) in [
            (
                r#"{allow, {user, {re, "^a+"}}, all, ["x"]}."#,
                "regular expression",
            ),
            (
                r#"{deny, {user, "a*"}, all, ["x"]}."#,
                "may do more than there",
            ),
            (
                r#"{allow, {client_attr, "a", "b"}, all, ["x"]}."#,
                "may do less than there",
            ),
            (
                r#"{allow, {zone, "a"}, all, ["x"]}."#,
                "\"zone\" has no equal",
            ),
            (r#"{allow, all, {publish, [{qos, 1}]}, ["x"]}."#, "QoS"),
            (
                r#"{allow, all, {publish, [{retain, true}]}, ["x"]}."#,
                "retained",
            ),
            (r#"{allow, all, connect, ["x"]}."#, "none of publish"),
            (
                r#"{allow, all, all, ["${cert_common_name}/x"]}."#,
                "placeholders",
            ),
            (r#"{allow, all, all, [{eq, "%u"}]}."#, "always stand for"),
            (r#"{allow, all, all, []}."#, "matches nothing"),
            (r#"{allow, {'or', []}, all, ["x"]}."#, "no client"),
            (
                r#"{allow, {ipaddr, "10.0.0.0/33"}, all, ["x"]}."#,
                "no address",
            ),
        ] {
            let why = left_out(text);
            assert!(why.contains(part), "{text}: {why}");
        }
        let ands = r#"{'or', [{user, "a"}, {user, "b"}]},"#.repeat(20);
        let ands = ands.trim_end_matches(',');
        let why = left_out(&format!(r#"{{allow, {{'and', [{ands}]}}, all, ["x"]}}."#));
        assert!(why.contains("64 is the most"), "{why}");
        // One topic of two.
        let imported = emqx_acl(r#"{deny, all, all, ["a", "b#"]}."#).unwrap();
        assert_eq!(imported.document.rules.unwrap(), ["deny all all a"]);
        assert_eq!(imported.left_out.len(), 1);
    }

    #[test]
    fn what_is_no_rule_is_an_error() {
        for text in [
            "\nallow.",
            "\n{permit, all}.",
            "\n{allow, all, all}.",
            "\n{allow, none}.",
        ] {
            assert_eq!(emqx_acl(text).unwrap_err().at, "line 2", "{text}");
        }
    }
}
