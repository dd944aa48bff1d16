//! Users, groups and rules as the HTTP API sees them.
//!
//! Deliberately absent: the store itself. Until a node runs it, no change can be made, and there are no records.

use std::sync::Arc;

use admin::problem::{Kind, Problem};
use admin::{Access, Asked, ChangeError, Changing, Effects};
use authentication::{StoredAs, stored_as};
use control::{By, Change, Verifier};
use control_view::View;
use futures_util::FutureExt as _;
use zeroize::Zeroizing;

use crate::control::ClusterControl;
use crate::node::Node;

/// What this node has of them, and how they are changed.
#[derive(Debug)]
pub(crate) struct NodeAccess {
    node: Arc<Node>,
    control: Arc<dyn ClusterControl>,
    view: Arc<View>,
}

impl NodeAccess {
    pub(crate) fn new(node: Arc<Node>, control: Arc<dyn ClusterControl>, view: Arc<View>) -> Self {
        Self {
            node,
            control,
            view,
        }
    }
}

impl Access for NodeAccess {
    fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    fn node(&self) -> control::Node {
        control::Node(self.control.status().node.0)
    }

    fn change(&self, _: By, _: Vec<Change>) -> Changing {
        let why = "this version has no store of users, groups and rules".to_owned();
        async move { Err(ChangeError::Unavailable(why)) }.boxed()
    }

    fn effects(&self, _: &[Change]) -> Effects {
        Effects::default()
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

    fn verifier(&self, hash: &str) -> Result<Verifier, String> {
        Ok(match stored_as(hash)? {
            StoredAs::Password => Verifier::Hash(hash.into()),
            StoredAs::Scram => Verifier::Scram(hash.into()),
        })
    }
}
