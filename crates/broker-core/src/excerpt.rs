//! Names that clients choose, as they stand in the log: cut, so that a line is short whatever a client sends.

use std::borrow::Cow;

/// Bytes of a name that the log shows.
const SHOWN: usize = 64;

/// The beginning of a client identifier, topic or filter, for the log.
pub fn excerpt(name: &str) -> Cow<'_, str> {
    let end = name.floor_char_boundary(SHOWN);
    if end == name.len() {
        return Cow::Borrowed(name);
    }
    let shown = name.get(..end).unwrap_or_default();
    Cow::Owned(format!("{shown}… ({} bytes)", name.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(excerpt(""), "");
        let fits = "x".repeat(SHOWN);
        assert_eq!(excerpt(&fits), fits);
        let long = format!("{}ä and more", "x".repeat(SHOWN - 1));
        let shown = format!("{}… ({} bytes)", "x".repeat(SHOWN - 1), long.len());
        assert_eq!(excerpt(&long), shown);
    }
}
