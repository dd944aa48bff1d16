//! The addresses of names, within a limit of time.
//!
//! A name server may be late, silent, or not there yet while a machine or a pod starts; the system's own look-up then takes
//! many seconds. Who asks here waits for [`LIMIT`] at most, and for [`BESIDE`] if the name had addresses before: these are given
//! then, and the look-up goes on beside. Of one name there is one look-up at a time, so that a silent name server does not
//! collect threads.
//!
//! Invariant: a name that had addresses once keeps them until a look-up gives others.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a name is looked up that had no address yet.
pub(crate) const LIMIT: Duration = Duration::from_secs(2);

/// How long one is looked up that had addresses before.
const BESIDE: Duration = Duration::from_millis(250);

/// Names that are remembered, at most.
const NAMES_LIMIT: usize = 256;

/// Addresses that are taken of one name, at most: as many as a cluster may have members, and as many again.
const ADDRESSES_LIMIT: usize = 128;

/// The names of a process, with the addresses that they had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Arc<Mutex<HashMap<String, Known>>>);

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<SocketAddr>,
    /// The look-up that is under way.
    asked: Option<watch::Receiver<Option<Outcome>>>,
}

/// The error is in words, because several may wait for it.
type Outcome = Result<Vec<SocketAddr>, String>;

impl Names {
    /// The addresses of `host:port`. On a runtime of tokio.
    ///
    /// # Errors
    /// The name has no address, or the look-up takes longer than [`LIMIT`]; and it had no address before.
    pub(crate) async fn look_up(&self, endpoint: &str) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = endpoint.parse() {
            return Ok(vec![address]);
        }
        let look = lookup_host(endpoint.to_owned());
        let look = async { look.await.map(Iterator::collect) };
        self.look_up_by(endpoint, look).await
    }

    async fn look_up_by(
        &self,
        endpoint: &str,
        look: impl Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        let (mut asked, before) = self.begin(endpoint, look);
        let patience = match before.is_empty() {
            true => LIMIT,
            false => BESIDE,
        };
        let outcome = timeout(patience, asked.wait_for(Option::is_some)).await;
        let outcome = match outcome {
            // The look-up ends without an outcome only with its runtime.
            Ok(outcome) => outcome.ok().and_then(|outcome| outcome.clone()),
            Err(_) => None,
        };
        match outcome {
            Some(Ok(addresses)) => Ok(addresses),
            _ if !before.is_empty() => Ok(before),
            Some(Err(error)) => Err(io::Error::other(error)),
            None => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the name was not resolved within {} s", LIMIT.as_secs()),
            )),
        }
    }

    /// Joins the look-up that is under way, or begins one. With the addresses of before.
    fn begin(
        &self,
        endpoint: &str,
        look: impl Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    ) -> (watch::Receiver<Option<Outcome>>, Vec<SocketAddr>) {
        let mut names = self.0.lock();
        if names.len() >= NAMES_LIMIT && !names.contains_key(endpoint) {
            names.retain(|_, known| known.asked.is_some());
        }
        let known = names.entry(endpoint.to_owned()).or_default();
        if let Some(asked) = &known.asked {
            return (asked.clone(), known.addresses.clone());
        }
        let (tell, asked) = watch::channel(None);
        known.asked = Some(asked.clone());
        let (names, endpoint) = (self.clone(), endpoint.to_owned());
        let ends = Ends { names, endpoint };
        tokio::spawn(async move {
            let outcome = match look.await {
                Ok(found) if found.is_empty() => Err("the name has no address".to_owned()),
                Ok(mut found) => {
                    found.truncate(ADDRESSES_LIMIT);
                    Ok(found)
                }
                Err(error) => Err(error.to_string()),
            };
            ends.note(&outcome);
            drop(ends);
            let _ = tell.send(Some(outcome));
        });
        (asked, known.addresses.clone())
    }
}

/// A look-up is over when this is dropped, also with its runtime.
struct Ends {
    names: Names,
    endpoint: String,
}

impl Ends {
    fn note(&self, outcome: &Outcome) {
        let mut names = self.names.0.lock();
        if let (Some(known), Ok(found)) = (names.get_mut(&self.endpoint), outcome) {
            known.addresses.clone_from(found);
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let mut names = self.names.0.lock();
        if let Some(known) = names.get_mut(&self.endpoint) {
            known.asked = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::{Instant, sleep};

    use super::*;

    fn at(port: u16) -> Vec<SocketAddr> {
        vec![SocketAddr::from(([10, 0, 0, 1], port))]
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_need_no_name_server() {
        let names = Names::default();
        let found = names.look_up("10.0.0.1:7").await.unwrap();
        assert_eq!(found, at(7));
        assert!(names.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_name_server_is_waited_for_within_the_limit() {
        let names = Names::default();
        let began = Instant::now();
        let failed = names.look_up_by("a:1", pending()).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), LIMIT);
        // The look-up goes on, and there is no second one.
        let never = async { unreachable!("one look-up of a name at a time") };
        let failed = names.look_up_by("a:1", never).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_name_had_before_is_given_while_the_name_server_is_late() {
        let names = Names::default();
        let look = |found| names.look_up_by("a:1", ready(Ok(found)));
        assert_eq!(look(at(1)).await.unwrap(), at(1));
        assert_eq!(look(at(2)).await.unwrap(), at(2));
        let late = async {
            sleep(Duration::from_secs(4)).await;
            Ok(at(3))
        };
        let began = Instant::now();
        assert_eq!(names.look_up_by("a:1", late).await.unwrap(), at(2));
        assert_eq!(began.elapsed(), BESIDE);
        sleep(Duration::from_secs(4)).await;
        let wrong = ready(Err(io::Error::other("NXDOMAIN")));
        assert_eq!(names.look_up_by("a:1", wrong).await.unwrap(), at(3));
        // No address is none that it had.
        assert_eq!(look(Vec::new()).await.unwrap(), at(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_without_an_address_is_an_error() {
        let names = Names::default();
        let wrong = ready(Err(io::Error::other("NXDOMAIN")));
        let failed = names.look_up_by("a:1", wrong).await.unwrap_err();
        assert_eq!(failed.to_string(), "NXDOMAIN");
        assert!(
            names
                .look_up_by("a:1", ready(Ok(Vec::new())))
                .await
                .is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_remembered_up_to_a_limit() {
        let names = Names::default();
        for name in 0..2 * NAMES_LIMIT {
            let endpoint = format!("n{name}:1");
            names.look_up_by(&endpoint, ready(Ok(at(1)))).await.unwrap();
        }
        assert!(names.0.lock().len() <= NAMES_LIMIT);
    }
}
