//! What takes the messages of an outlet.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use outlet::{Delivery, Item, OpenError, Position};

use crate::definition::Definition;
use crate::epoch::Epoch;
use crate::inlet::{InletDefinition, Source};
use crate::report::Count;

/// A target. Calls come one after the other; each ends in time, whatever the other system does.
pub trait Target: Debug + Send {
    /// Opens it, again too after an attempt that failed. Gives what the target says that it has, if it keeps that.
    ///
    /// # Errors
    /// Why it cannot be opened; [`OpenError::Fenced`] if a process with a later epoch has the outlet.
    fn open(&mut self, epoch: Epoch) -> BoxFuture<'_, Result<Option<Position>, OpenError>>;

    /// Gives it messages, at least one.
    fn deliver<'a>(&'a mut self, batch: &'a [Arc<Item>]) -> BoxFuture<'a, Delivery>;

    /// Keeps it alive while there is nothing for it. May be dropped at any time.
    fn idle(&mut self) -> BoxFuture<'_, Infallible> {
        std::future::pending().boxed()
    }

    /// Messages that it has dropped, as they went in a circle of brokers; they count as taken.
    fn looped(&self) -> Count {
        Count(0)
    }

    /// Whether it can be reached, in words; nothing is written there.
    ///
    /// # Errors
    /// Why it cannot be reached, or would take no messages.
    fn probe(&mut self) -> BoxFuture<'_, Result<String, String>>;
}

/// The kinds of targets and sources that a program has.
pub trait Connectors: Debug + Sync {
    /// The target of an outlet, not opened yet.
    ///
    /// # Errors
    /// The program lacks this kind; a template or a URL that is none, a file that cannot be read.
    fn target(&self, definition: &Definition) -> Result<Box<dyn Target>, String>;

    /// The source of an inlet, not connected to yet.
    ///
    /// # Errors
    /// The program lacks this kind; a URL that is none, a file that cannot be read.
    fn source(&self, definition: &InletDefinition) -> Result<Box<dyn Source>, String>;
}
