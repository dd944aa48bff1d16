//! What a machine needs of the table store: reading, and a list of changes to write.

use std::fmt;
use std::ops::ControlFlow;

/// Sorted keys and values on disk, as of the last checkpoint.
pub trait Table {
    /// The value of a key.
    ///
    /// # Errors
    /// The disk cannot be read, or what it holds is damaged.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError>;

    /// Visits the keys from `from` (included) to `to` (excluded) in order until told to stop.
    ///
    /// # Errors
    /// The disk cannot be read, or what it holds is damaged.
    #[expect(
        clippy::type_complexity,
        reason = "an alias of it would not let callers borrow"
    )]
    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TableError>;
}

/// Why a table cannot be read. The shard stops: it must not decide anything on half of its state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableError(pub String);

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tables cannot be read: {}", self.0)
    }
}

impl std::error::Error for TableError {}

/// A change of one key: its new value, or `None` to remove it.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// What a checkpoint writes, all or nothing: net changes since the one before. A key stands once.
#[derive(Debug, Default)]
pub struct Changes {
    /// The changes, in no order.
    pub entries: Vec<Change>,
    /// Bytes of all keys and values.
    pub bytes: usize,
}

impl Changes {
    /// Writes a value.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.bytes += key.len() + value.len();
        self.entries.push((key, Some(value)));
    }

    /// Adds other changes, of other keys.
    pub fn append(&mut self, others: &mut Self) {
        self.bytes += std::mem::take(&mut others.bytes);
        self.entries.append(&mut others.entries);
    }

    /// Removes a key.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.bytes += key.len();
        self.entries.push((key, None));
    }
}
