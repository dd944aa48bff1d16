//! A list of a document.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

/// The entries of one kind. A section that is missing says nothing of records of this kind: an import leaves them as they are, and an
/// import with [`Mode::Replace`](crate::Mode) removes those that a section which is there does not have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Section<T>(Option<Vec<T>>);

impl<T> Section<T> {
    /// Whether the document says nothing of records of this kind.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.0.is_none()
    }

    /// Adds an entry, and the section if it is missing.
    pub fn push(&mut self, entry: T) {
        self.0.get_or_insert_default().push(entry);
    }

    /// Keeps the entries that this is true of.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        if let Some(entries) = &mut self.0 {
            entries.retain(keep);
        }
    }
}

impl<T> Default for Section<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> From<Vec<T>> for Section<T> {
    fn from(entries: Vec<T>) -> Self {
        Self(Some(entries))
    }
}

impl<T> From<Section<T>> for Vec<T> {
    fn from(Section(entries): Section<T>) -> Self {
        entries.unwrap_or_default()
    }
}

impl<T> FromIterator<T> for Section<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        Self(Some(entries.into_iter().collect()))
    }
}

impl<T> Deref for Section<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl<T> DerefMut for Section<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

impl<'a, T> IntoIterator for &'a Section<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut Section<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}
