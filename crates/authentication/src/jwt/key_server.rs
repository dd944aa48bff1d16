//! A key set that a server publishes.
//!
//! Invariants: the server is asked by one at a time; a set that was read once stays when it cannot be read
//! again.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::RwLock;
use tokio::{
    runtime::Handle,
    sync::Mutex,
    time::{Instant, sleep},
};

use super::keys::Key;

/// How often a token with an unknown key has the set read again, at most.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Where a key set comes from.
pub(crate) trait KeyServer: Send + Sync + fmt::Debug {
    /// Reads the set, within a time limit.
    fn fetch(&self) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + '_>>;
}

/// The set that was read last.
#[derive(Debug)]
pub(crate) struct ServedKeys {
    server: Box<dyn KeyServer>,
    /// `None`: it was never read.
    keys: RwLock<Option<Arc<Vec<Key>>>>,
    last: Mutex<Option<Attempt>>,
}

/// The key sets in use by address, so that a reload goes on with what was read.
#[derive(Debug, Default)]
pub(crate) struct KeySets(parking_lot::Mutex<Vec<KeySet>>);

#[derive(Debug)]
struct KeySet {
    url: String,
    refresh: Duration,
    keys: Weak<ServedKeys>,
}

impl KeySets {
    /// The key set at an address; a server is opened if it is not in use.
    pub(super) fn get(
        &self,
        url: &str,
        refresh: Duration,
        runtime: &Handle,
        open: impl FnOnce() -> Result<Box<dyn KeyServer>, String>,
    ) -> Result<Arc<ServedKeys>, String> {
        let mut sets = self.0.lock();
        sets.retain(|set| set.keys.strong_count() > 0);
        let in_use = sets
            .iter()
            .find(|set| set.url == url && set.refresh == refresh)
            .and_then(|set| set.keys.upgrade());
        if let Some(keys) = in_use {
            return Ok(keys);
        }
        let keys = ServedKeys::start(open()?, refresh, runtime);
        sets.push(KeySet {
            url: url.to_owned(),
            refresh,
            keys: Arc::downgrade(&keys),
        });
        Ok(keys)
    }
}

/// The last time that the server was asked.
#[derive(Debug)]
struct Attempt {
    at: Instant,
    failure: Option<String>,
}

impl ServedKeys {
    /// Reads the set now and then, until nobody uses it any more.
    fn start(server: Box<dyn KeyServer>, refresh: Duration, runtime: &Handle) -> Arc<Self> {
        let keys = Arc::new(Self::new(server));
        runtime.spawn(keep_fresh(Arc::downgrade(&keys), refresh));
        keys
    }

    fn new(server: Box<dyn KeyServer>) -> Self {
        Self {
            server,
            keys: RwLock::default(),
            last: Mutex::default(),
        }
    }

    /// The keys for a token. If the one that it names is unknown, the server is asked first, unless it was
    /// a moment ago.
    ///
    /// # Errors
    /// Why the set was never read.
    pub(super) async fn keys_for(&self, id: Option<&str>) -> Result<Arc<Vec<Key>>, String> {
        let current = self.keys.read().clone();
        if let Some(keys) = current.filter(|keys| is_known(keys, id)) {
            return Ok(keys);
        }
        let failure = self.refresh(RETRY_INTERVAL).await;
        let current = self.keys.read().clone();
        current.ok_or_else(|| failure.unwrap_or_default())
    }

    /// Asks the server, unless it was asked within `interval`. Gives the last attempt's failure.
    async fn refresh(&self, interval: Duration) -> Option<String> {
        let mut last = self.last.lock().await;
        if let Some(attempt) = &*last
            && attempt.at.elapsed() < interval
        {
            return attempt.failure.clone();
        }
        let failure = self.fetch().await.err();
        if let Some(reason) = &failure {
            tracing::warn!("a key set cannot be read; the previous one stays in use: {reason}");
        }
        *last = Some(Attempt {
            at: Instant::now(),
            failure: failure.clone(),
        });
        failure
    }

    async fn fetch(&self) -> Result<(), String> {
        let keys = Key::set(&self.server.fetch().await?)?;
        *self.keys.write() = Some(Arc::new(keys));
        Ok(())
    }
}

fn is_known(keys: &[Key], id: Option<&str>) -> bool {
    id.is_none_or(|id| keys.iter().any(|key| key.has_id(id)))
}

async fn keep_fresh(keys: Weak<ServedKeys>, refresh: Duration) {
    while let Some(keys) = keys.upgrade() {
        keys.refresh(Duration::ZERO).await;
        drop(keys);
        sleep(refresh).await;
    }
}

#[cfg(test)]
mod tests;
