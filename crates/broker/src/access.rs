//! Users, groups and rules as the HTTP API sees them.

use std::sync::Arc;
use std::time::Duration;

use admin::problem::{Kind, Problem};
use admin::{Access, Asked, AuditPart, Changing, Often, Trail, WeakHashes};
use authentication::{StoredAs, stored_as_with};
use control::{AuditNote, By, Change, EntryNumber, Verifier};
use control_view::View;
use futures_util::FutureExt as _;
use zeroize::Zeroizing;

use crate::control::control_age;
use crate::control_requests;
use crate::node::Node;

/// What this node has of them, and how they are changed.
#[derive(Debug)]
pub(crate) struct NodeAccess {
    node: Arc<Node>,
}

/// What else of this node is in the audit.
#[derive(Debug)]
struct NodeTrail {
    node: Arc<Node>,
}

impl Trail for NodeTrail {
    fn node(&self) -> control::Node {
        control::Node(self.node.store().node())
    }

    fn note(&self, note: AuditNote) {
        self.node.rim.audit_notes.handle_note(note);
    }

    fn count(&self, often: Often) {
        self.node.rim.audit_notes.handle_often(often);
    }
}

impl NodeAccess {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }
}

impl Access for NodeAccess {
    fn view(&self) -> Arc<View> {
        Arc::clone(&self.node.rim.control.view)
    }

    fn node(&self) -> control::Node {
        control::Node(self.node.store().node())
    }

    fn age(&self) -> Duration {
        control_age(&self.node)
    }

    fn change(&self, by: By, changes: Vec<Change>) -> Changing {
        control_requests::change(Arc::clone(&self.node), by, changes).boxed()
    }

    fn audit(&self, from: EntryNumber, limit: usize) -> Option<AuditPart> {
        let store::AuditPart {
            kept,
            head,
            entries,
        } = self.node.store().control_store.audit(from, limit)?;
        Some(AuditPart {
            kept,
            head,
            entries,
        })
    }

    fn trail(&self) -> Arc<dyn Trail> {
        Arc::new(NodeTrail {
            node: Arc::clone(&self.node),
        })
    }

    fn hash(&self, password: Zeroizing<String>) -> Asked<Verifier> {
        let hashed = self.node.rim.authentication.hash(password);
        async move {
            let hash = hashed.await.map_err(|error| {
                tracing::error!(%error, "a password was not hashed");
                Problem::new(Kind::Internal, "the password could not be hashed")
            })?;
            Ok(Verifier::Hash(hash.into()))
        }
        .boxed()
    }

    fn verifier(&self, hash: &str, weak: WeakHashes) -> Result<Verifier, String> {
        let weak = match weak {
            WeakHashes::Refuse => authentication::WeakHashes::Refuse,
            WeakHashes::Accept => authentication::WeakHashes::Accept,
        };
        Ok(match stored_as_with(hash, weak)? {
            StoredAs::Password => Verifier::Hash(hash.into()),
            StoredAs::Scram => Verifier::Scram(hash.into()),
        })
    }
}
