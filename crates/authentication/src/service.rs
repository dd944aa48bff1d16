//! The threads that ask the chain.
//!
//! Invariant: every login gets one answer, also if the threads end. A panic of an authenticator ends the process,
//! as any panic does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use config::AuthenticationConfig;
use control_view::View;
use parking_lot::RwLock;
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
    task::JoinError,
};
use zeroize::Zeroizing;

use authentication_api::{
    Credentials, DatabaseUser, Denial, Identity, Source, Step, UserNow, Verdict,
};

use crate::{
    OpenError,
    chain::{Chain, Shared},
    hash_threads::{SPARE_THREADS, thread_count},
    password_hash::hash_by_argon2id,
};

/// The chain of authenticators, on threads of its own.
#[derive(Debug)]
pub struct Authentication {
    chain: RwLock<Arc<Chain>>,
    shared: Shared,
    pending: Arc<AtomicUsize>,
    max_pending: usize,
    /// Held while a user is looked up again: logins go before.
    looked_up: Arc<tokio::sync::Mutex<()>>,
    thread: Option<Running>,
}

/// The thread that runs the authenticators, and what ends it.
#[derive(Debug)]
struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Authentication {
    /// Reads keys and files and starts the threads. Servers that cannot be reached are no error. `view`: what the node knows
    /// of the users of the control store, at any time.
    ///
    /// # Errors
    /// A setting that is missing or wrong, a file that cannot be read.
    pub fn open(config: &AuthenticationConfig, view: Arc<View>) -> Result<Self, OpenError> {
        let hash_threads = thread_count(config.hash_threads);
        let no_threads = |error| OpenError(format!("no thread for authentication: {error}"));
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(hash_threads + SPARE_THREADS)
            .thread_name("login-hash")
            .build()
            .map_err(no_threads)?;
        let shared = Shared::new(runtime.handle(), hash_threads, view)?;
        let chain = Chain::open(config, &shared)?;
        Ok(Self {
            chain: RwLock::new(Arc::new(chain)),
            shared,
            pending: Arc::default(),
            max_pending: config.max_pending as usize,
            looked_up: Arc::default(),
            thread: Some(Running::start(runtime).map_err(no_threads)?),
        })
    }

    /// Reads keys and files of all authenticators and starts nothing: no thread, no connection.
    #[must_use]
    pub fn check(config: &AuthenticationConfig) -> Vec<OpenError> {
        // Tasks that authenticators give to a runtime which nobody drives never run.
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                return vec![OpenError(format!("no thread for authentication: {error}"))];
            }
        };
        let hash_threads = thread_count(config.hash_threads);
        match Shared::new(runtime.handle(), hash_threads, Arc::default()) {
            Ok(shared) => Chain::problems(config, &shared),
            Err(error) => vec![error],
        }
    }

    /// Reads keys and files again, and takes over changed settings. After an error all is as before.
    ///
    /// # Errors
    /// As [`Authentication::open`].
    pub fn reload(&self, config: &AuthenticationConfig) -> Result<(), OpenError> {
        let chain = Chain::open(config, &self.shared)?;
        *self.chain.write() = Arc::new(chain);
        Ok(())
    }

    /// Whether nobody judges credentials now: no authenticator is configured, and the control store has no users.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chain.read().is_empty()
    }

    /// Why rules of a user of the control store, or of its groups, cannot be read by this version, so that clients of that user
    /// are refused. `None`: nobody has tried to log in as such a user, or it was changed since.
    #[must_use]
    pub fn unreadable_rules(&self) -> Option<String> {
        self.shared.control.unreadable_rules()
    }

    /// Asks the chain. `reply` is called once, from another thread. Look at
    /// [`Authentication::is_crowded`] before.
    pub fn authenticate(
        &self,
        credentials: Credentials,
        reply: impl FnOnce(Verdict) + Send + 'static,
    ) {
        let mut login = Login::begin(&self.pending, reply);
        let chain = Arc::clone(&self.chain.read());
        self.shared.runtime.spawn(async move {
            let verdict = chain.ask(&credentials).await;
            login.answer(verdict);
        });
    }

    /// What is known now of a user that a client has logged in as: of files, as of the last reload. Waits for nobody.
    #[must_use]
    pub fn user_now(&self, source: Source, username: &str) -> UserNow {
        self.chain.read().user_now(source, username)
    }

    /// What comes with a login of a user of the control store now; `None`: there is no such user there, or it may not log in.
    /// Waits for nobody.
    #[must_use]
    pub fn identity_of(&self, username: &str) -> Option<Identity> {
        self.chain.read().identity_of(username)
    }

    /// Looks a user of a database up again, without a password. `reply` is called once, from another thread, with
    /// [`Denial::UnknownUser`] if there is no such user. One user is looked up at a time; the others wait.
    pub fn look_up(&self, user: Arc<DatabaseUser>, reply: impl FnOnce(Verdict) + Send + 'static) {
        let mut login = Login::begin(&self.pending, reply);
        let chain = Arc::clone(&self.chain.read());
        let turn = Arc::clone(&self.looked_up);
        self.shared.runtime.spawn(async move {
            let _turn = turn.lock().await;
            let verdict = chain.look_up(&user).await;
            login.answer(verdict);
        });
    }

    /// Hashes a password by argon2id, on the threads that check passwords at logins.
    ///
    /// # Errors
    /// The threads have ended, or the system has no random numbers.
    pub fn hash(
        &self,
        password: Zeroizing<String>,
    ) -> impl Future<Output = Result<String, String>> + Send + use<> {
        let hashes = self.shared.hashes.clone();
        let hash = move || hash_by_argon2id(password.as_bytes()).map_err(|error| error.to_string());
        // The threads are those of the runtime.
        let hashed = self
            .shared
            .runtime
            .spawn(async move { hashes.run(hash).await });
        async move {
            let ended = |error: JoinError| error.to_string();
            hashed.await.map_err(ended)?.map_err(ended)?
        }
    }

    /// Begins an enhanced authentication of a client with this identifier. `None`: no authenticator knows the method.
    #[must_use]
    pub fn begin_exchange(&self, client_id: &str, method: &str, data: &[u8]) -> Option<Step> {
        let chain = Arc::clone(&self.chain.read());
        chain.begin_exchange(client_id, method, data)
    }

    /// Whether `maxPending` logins are under way: then the next is better asked for later.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.pending.load(Ordering::Relaxed) >= self.max_pending
    }
}

impl Drop for Authentication {
    fn drop(&mut self) {
        if let Some(running) = self.thread.take() {
            running.end();
        }
    }
}

impl Running {
    fn start(runtime: Runtime) -> std::io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("login".to_owned())
            .spawn(move || {
                // An error is the end of the sender, which means the same.
                let _ = runtime.block_on(stopped);
                // Hashes that are being computed are not waited for.
                runtime.shutdown_background();
            })?;
        Ok(Self { stop, thread })
    }

    fn end(self) {
        let _ = self.stop.send(());
        // A panic has ended the process.
        let _ = self.thread.join();
    }
}

/// A login under way: counted, and answered when dropped at the latest.
struct Login<R: FnOnce(Verdict)> {
    reply: Option<R>,
    pending: Arc<AtomicUsize>,
}

impl<R: FnOnce(Verdict)> Login<R> {
    fn begin(pending: &Arc<AtomicUsize>, reply: R) -> Self {
        pending.fetch_add(1, Ordering::Relaxed);
        Self {
            reply: Some(reply),
            pending: Arc::clone(pending),
        }
    }

    fn answer(&mut self, verdict: Verdict) {
        if let Some(reply) = self.reply.take() {
            self.pending.fetch_sub(1, Ordering::Relaxed);
            reply(verdict);
        }
    }
}

impl<R: FnOnce(Verdict)> Drop for Login<R> {
    fn drop(&mut self) {
        self.answer(Verdict::Deny(Denial::Unavailable));
    }
}

#[cfg(test)]
mod tests;
