//! What the broker's logic needs of the process that it runs in: clocks, the store, event loops, links to other nodes,
//! authenticators. `broker` implements this trait with threads and sockets; a test or a simulation implements it without.
//!
//! All calls return at once. Answers of the store and of authenticators come to the asking loop as [`LoopMessage`]; what comes
//! from other nodes is handed to [`Peers`](crate::Peers).

use std::fmt::Debug;
use std::sync::Arc;

use authentication_api::{Credentials, DatabaseUser, Source, Step, UserNow, Verdict};
use net_api::PeerAddress;
use store_state::api::Store;

use crate::clients::message::LoopMessage;
use crate::connect::refused::RefusedLogin;
use crate::events::{ClientEvent, SessionEvent, SubscriptionEvent};
use crate::node::Node;
use crate::peers::Links;

/// The process that a node runs in.
pub trait Rim: Debug + Send + Sync + Sized + 'static {
    /// The way to the stores.
    type Store: Store;
    /// The way to the other nodes.
    type Links: Links;

    /// The store, if it has been opened.
    fn store(&self) -> Option<&Self::Store>;

    /// Whether the event loops run.
    fn loops_run(&self) -> bool;

    /// Sends an event loop something. Before the loops run, it is dropped. The loop may handle it on the spot, in the
    /// calling thread: no lock may be held that a loop takes.
    fn send(&self, loop_index: usize, mail: LoopMessage);

    /// Now, in ms of Unix time when the process started and of a clock that nothing sets back since then.
    fn now_ms(&self) -> u64;

    /// The same in µs.
    fn now_us(&self) -> u64;

    /// Now by the system's clock, in s of Unix time.
    fn system_s(&self) -> u64;

    /// The cluster's time at a time of [`Self::now_ms`], in ms of Unix time. It may be set back.
    fn cluster_time_ms(&self, now_ms: u64) -> u64;

    /// The same in µs.
    fn cluster_time_us(&self, now_us: u64) -> u64;

    /// Whether a listener, by its number, takes connections of proxies only.
    fn is_proxied(&self, listener: u16) -> bool;

    /// Whether a listener of proxies trusts a peer.
    fn trusts(&self, listener: u16, peer: PeerAddress) -> bool;

    /// Whether there is anybody who judges credentials.
    fn has_authenticators(&self) -> bool;

    /// What is known now of a user that a client has logged in as. Waits for nobody.
    fn user_now(&self, source: Source, username: &str) -> UserNow;

    /// Whether too many logins are under way for another one to begin.
    fn has_too_many_logins(&self) -> bool;

    /// Begins an exchange of enhanced authentication of a client with this identifier. `None`: there is no such method.
    fn begin_exchange(&self, client_id: &str, method: &str, data: &[u8]) -> Option<Step>;

    /// Has credentials judged; what `answered` makes of the verdict, at a time of [`Self::now_ms`], is mail for a loop.
    fn authenticate(
        &self,
        loop_index: usize,
        credentials: Credentials,
        answered: impl FnOnce(Verdict, u64) -> LoopMessage + Send + 'static,
    );

    /// Has a user of a database looked up again, without a password; what `answered` makes of the verdict is sent to a
    /// loop. [`Denial::UnknownUser`](authentication_api::Denial::UnknownUser): there is no such user.
    fn look_up(
        &self,
        loop_index: usize,
        user: Arc<DatabaseUser>,
        answered: impl FnOnce(Verdict) -> LoopMessage + Send + 'static,
    );

    /// Tells the other nodes that this process is the one that runs.
    fn tell_incarnation(&self);

    /// Something has happened to a client, for those who watch. Nobody watches unless a process lets them.
    fn tell(&self, _: &ClientEvent<'_>) {}

    /// A client was not let in, for those who look for the cause. All are told: strangers choose how many there are.
    fn tell_refused(&self, _: &RefusedLogin<'_>) {}

    /// A subscription was added or removed, for those who watch. There may be many at once.
    fn tell_subscription(&self, _: &SubscriptionEvent<'_>) {}

    /// A session has begun or ended, for those who watch. There may be many at once.
    fn tell_session(&self, _: &SessionEvent<'_>) {}

    /// The topics below `$SYS` and their values now.
    fn sys_topics(&self, node: &Node<Self>) -> Vec<(String, String)>;
}
