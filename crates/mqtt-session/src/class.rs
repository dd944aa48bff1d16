//! Classes of clients, by number.

/// A class of clients, by a hash of its name, so that it means the same at every node and after every start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ClassId(pub u32);

impl ClassId {
    /// Of clients that no other class takes.
    pub const DEFAULT: Self = Self(0);

    /// That of a class with this name: FNV-1a of its bytes, 32 bits. Two names may have the same one.
    #[must_use]
    pub fn of(name: &str) -> Self {
        const BASIS: u32 = 0x811c_9dc5;
        const PRIME: u32 = 0x0100_0193;
        let hash = name.bytes().fold(BASIS, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(PRIME)
        });
        // 0 is taken.
        Self(hash.max(1))
    }

    /// Whether it is that of clients that no other class takes.
    #[must_use]
    pub fn is_default(self) -> bool {
        self == Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_same_number_everywhere() {
        // It is stored: <http://www.isthe.com/chongo/tech/comp/fnv/> has these.
        assert_eq!(ClassId::of("").0, 0x811c_9dc5);
        assert_eq!(ClassId::of("a").0, 0xe40c_292c);
        assert_eq!(ClassId::of("foobar").0, 0xbf9c_f968);
        assert!(!ClassId::of("application").is_default());
    }
}
