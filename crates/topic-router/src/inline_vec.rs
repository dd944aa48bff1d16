//! A stack that needs the heap only for unusual depth, so that matching does not allocate.

/// Items kept in place: as many levels as topics commonly have, twice over.
const INLINE: usize = 16;

/// A growing list whose first items stand in place.
pub(crate) struct InlineVec<T> {
    len: usize,
    inline: [T; INLINE],
    spilled: Vec<T>,
}

impl<T: Copy + Default> InlineVec<T> {
    pub(crate) fn new() -> Self {
        InlineVec {
            len: 0,
            inline: [T::default(); INLINE],
            spilled: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, item: T) {
        *self.slot(self.len) = item;
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        Some(*self.slot(self.len))
    }

    /// The place of item `at`, filled with defaults up to there if it was not used yet.
    pub(crate) fn slot(&mut self, at: usize) -> &mut T {
        match at.checked_sub(INLINE) {
            None => &mut self.inline[at],
            Some(beyond) => {
                if beyond >= self.spilled.len() {
                    self.spilled.resize(beyond + 1, T::default());
                }
                &mut self.spilled[beyond]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pops_in_reverse_across_the_border() {
        let mut list = InlineVec::new();
        (0..40).for_each(|i| list.push(i));
        let popped: Vec<i32> = std::iter::from_fn(|| list.pop()).collect();
        assert_eq!(popped, (0..40).rev().collect::<Vec<_>>());
    }
}
