//! An input, read piece by piece.

/// The bytes of an input that are not used yet; 0 when they are used up.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    pub(crate) fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    pub(crate) fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Bytes behind their number, of two bytes.
    pub(crate) fn counted(&mut self) -> &'a [u8] {
        let length = u16::from_be_bytes([self.byte(), self.byte()]);
        self.take(length.into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Bytes behind their number, as [`Input::counted`] reads them.
pub(crate) fn counted(bytes: &[u8], to: &mut Vec<u8>) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    to.extend(length.to_be_bytes());
    to.extend(&bytes[..length.into()]);
}
