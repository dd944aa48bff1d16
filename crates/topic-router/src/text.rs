//! Short strings without an allocation of their own.
//!
//! Invariant: 24 bytes in place; up to 22 bytes of text, which is what topics commonly have, need no
//! heap. Longer ones are boxed at their exact size.

use core::borrow::Borrow;
use core::cmp::Ordering;

/// Bytes kept in place.
const INLINE: usize = 22;

/// An immutable byte string.
#[derive(Debug)]
pub(crate) enum Text {
    Inline { len: u8, bytes: [u8; INLINE] },
    Boxed(Box<[u8]>),
}

impl Text {
    pub(crate) fn new(text: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        match bytes.get_mut(..text.len()) {
            Some(part) => {
                part.copy_from_slice(text);
                Text::Inline {
                    len: text.len() as u8,
                    bytes,
                }
            }
            None => Text::Boxed(text.into()),
        }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Text::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Text::Boxed(bytes) => bytes,
        }
    }

    /// Heap memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Text::Inline { .. } => 0,
            Text::Boxed(bytes) => bytes.len(),
        }
    }
}

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Text {}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_every_length_and_stays_small() {
        assert_eq!(size_of::<Text>(), 24);
        for len in [0, 1, 21, 22, 23, 300] {
            let text = vec![b'x'; len];
            assert_eq!(Text::new(&text).as_bytes(), text);
            assert_eq!(
                Text::new(&text).heap_bytes(),
                if len > INLINE { len } else { 0 }
            );
        }
    }
}
