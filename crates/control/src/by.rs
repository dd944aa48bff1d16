//! Who has changed something.

use serde::{Deserialize, Serialize};

use crate::change::Node;
use crate::limit::{self, Invalid};

/// Who asks for a change, from where.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct By {
    /// How it has shown who it is.
    pub means: Means,
    /// The name of the person or the key.
    pub name: Box<str>,
    /// Where the request came from; `None`: not over a network.
    pub address: Option<Address>,
    /// The node that was asked.
    pub node: Node,
}

/// An address as text, without a port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Address(pub Box<str>);

/// How somebody has shown who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Means {
    /// A key of the API.
    Key,
    /// A login.
    Person,
    /// The token of `http.tokenFile`.
    Token,
    /// A file that was imported.
    Import,
}

impl By {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        limit::at_most("by", self.name.len(), limit::USER_NAME)?;
        let address = self.address.as_ref().map_or(0, |Address(text)| text.len());
        limit::at_most("address", address, limit::TEXT)
    }
}
