//! Whether the broker is as one is that has just begun on a new data folder.
//!
//! Deliberately absent: sessions without inboxes, the options of the broker, and shards of nodes that are
//! not watched, about which metrics say nothing.

use text_table::units;

use super::node::{Holdings, Node};
use crate::failure::Failure;

/// Of a run whose nodes are not watched.
pub(super) const UNKNOWN: &str = "whether this was a cold start is not known; with --metrics the run would see \
                                  whether HeraldMQ's nodes hold anything";

/// Asks the nodes for what they hold, before there is any load.
///
/// # Errors
/// One of them does not answer, is not open yet, or holds what one on a new data folder does not.
pub(super) fn check(urls: &[String]) -> Result<(), Failure> {
    let mut found = Vec::new();
    for url in urls {
        let holdings = Node::new(url).holdings();
        let holdings = holdings.map_err(|error| Failure::Runtime(format!("{url}: {error}")))?;
        if holdings.shards.is_none() {
            let message = format!("{url}: the store of the broker is not open yet; try again");
            return Err(Failure::Runtime(message));
        }
        let things = things(&holdings);
        if let Some(things) = in_words(&things) {
            found.push(format!("the broker at {url} holds {things}"));
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(Failure::Runtime(format!(
        "not a cold start: {}; start it on a new data folder, or leave `_cold` out of the scenario's name",
        found.join(", ")
    )))
}

/// What is not there on a new data folder.
fn things(holdings: &Holdings) -> Vec<String> {
    let some = |count: u64, one: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{} {one}s", units::count(count))),
    };
    let mut things = Vec::new();
    things.extend(some(holdings.sessions.0, "session"));
    things.extend(some(holdings.retained.0, "retained message"));
    let stores = holdings.shards.iter().flat_map(|shards| shards.stores());
    for (name, store) in stores {
        // A new store numbers its shards from 0; a split names a shard by its first slot.
        let of_splits = store
            .led
            .iter()
            .filter(|&&shard| u32::from(shard) >= store.known.0);
        things.extend(
            some(of_splits.count() as u64, &format!("{name} shard"))
                .map(|shards| format!("{shards} that came of splits")),
        );
    }
    things
}

/// `a, b and c`; `None` if there is nothing.
fn in_words(things: &[String]) -> Option<String> {
    match things {
        [] => None,
        [one] => Some(one.clone()),
        [others @ .., last] => Some(format!("{} and {last}", others.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::super::node::fixture::{kept, page};
    use super::*;

    /// A node that answers one request with the page.
    fn node(page: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4_096];
            let _ = stream.read(&mut request).unwrap();
            let length = page.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{page}");
            stream.write_all(answer.as_bytes()).unwrap();
        });
        url
    }

    fn refusal(urls: &[String]) -> String {
        match check(urls) {
            Err(Failure::Runtime(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_broker_that_holds_nothing_is_cold_however_many_shards_it_began_with() {
        let new = || page(4, &[0, 1, 2, 3], 0) + kept(0, 0).as_str();
        assert_eq!(check(&[node(new()), node(new())]), Ok(()));
    }

    #[test]
    fn a_broker_that_holds_something_is_refused_with_what_it_is() {
        let used = node(page(2, &[0, 32_768], 1) + kept(30_000, 1).as_str());
        let message = refusal(&[node(page(2, &[], 0) + kept(0, 0).as_str()), used.clone()]);
        let expected = format!(
            "not a cold start: the broker at {used} holds 30,000 sessions, 1 retained message and 1 inbox \
             shard that came of splits; start it on a new data folder, or leave `_cold` out of the \
             scenario's name"
        );
        assert_eq!(message, expected);
    }

    #[test]
    fn a_broker_that_does_not_tell_is_refused() {
        let starting = node(page(0, &[], 0) + kept(0, 0).as_str());
        assert!(refusal(&[starting]).contains("not open yet"));
        let other = node("up 1\n".to_owned());
        assert!(refusal(&[other]).contains("not among the metrics of HeraldMQ"));
    }
}
