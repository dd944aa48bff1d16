//! Who has changed something.

use serde::{Deserialize, Serialize};

use crate::limit::{self, Invalid};
use crate::number::Node;

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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Means {
    /// A key of the API that is in the store; before there were such keys, one of a file.
    Key,
    /// A login of a person in the store; before there were any, of somebody in a file.
    Person,
    /// The token of `http.tokenFile`.
    Token,
    /// A file that was imported.
    Import,
    /// A key of `http.keyFile`.
    FileKey,
    /// A login of somebody in `http.userFile`.
    FilePerson,
    /// The code that a node's log shows while nobody can change anything.
    FirstCode,
    /// The node itself.
    Node,
}

impl Means {
    /// Whether who asks is known by files, which no change of the store takes away.
    #[must_use]
    pub fn is_of_files(self) -> bool {
        matches!(self, Self::Token | Self::FileKey | Self::FilePerson)
    }

    /// What programs know it as that know no people in the store; `None`: as nothing.
    #[must_use]
    pub fn before_people(self) -> Option<Self> {
        match self {
            Self::Key | Self::FileKey => Some(Self::Key),
            Self::Person | Self::FilePerson => Some(Self::Person),
            Self::Token => Some(Self::Token),
            Self::Import => Some(Self::Import),
            Self::FirstCode | Self::Node => None,
        }
    }
}

impl By {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        limit::at_most("by", self.name.len(), limit::USER_NAME)?;
        let address = self.address.as_ref().map_or(0, |Address(text)| text.len());
        limit::at_most("address", address, limit::TEXT)
    }
}
