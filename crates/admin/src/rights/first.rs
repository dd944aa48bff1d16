//! The code with which the first administrator is made: whoever reads the log of a node has it.
//!
//! Invariant: it is good for nothing once anybody can change something, in files or in the store.

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Characters that nobody takes for each other.
const CHARACTERS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Characters of a code, five random bits each, and of a group of them.
const LENGTH: usize = 20;
const GROUP: usize = 5;

/// A code of this process.
pub(super) struct FirstCode(Zeroizing<String>);

impl Default for FirstCode {
    fn default() -> Self {
        let mut code = Zeroizing::new(String::with_capacity(LENGTH + LENGTH / GROUP));
        for place in 0..LENGTH {
            if place > 0 && place % GROUP == 0 {
                code.push('-');
            }
            let character = CHARACTERS[rand::random_range(0..CHARACTERS.len())];
            code.push(char::from(character));
        }
        Self(code)
    }
}

impl FirstCode {
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether somebody knows it, whatever is between its groups and however letters are written. How long that takes depends on the
    /// length alone.
    pub(super) fn is(&self, shown: &str) -> bool {
        let plain = |text: &str| {
            let characters = text.chars().filter(char::is_ascii_alphanumeric);
            let upper = characters.map(|character| character.to_ascii_uppercase());
            Zeroizing::new(upper.collect::<String>())
        };
        plain(shown)
            .as_bytes()
            .ct_eq(plain(&self.0).as_bytes())
            .into()
    }
}

impl std::fmt::Debug for FirstCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FirstCode")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_known_in_full_only() {
        let code = FirstCode::default();
        let text = code.text().to_owned();
        assert_eq!(text.len(), 23);
        assert!(code.is(&text) && code.is(&text.to_lowercase().replace('-', " ")));
        for shown in [
            "",
            &text[1..],
            &format!("{text}0"),
            "00000-00000-00000-00000",
        ] {
            assert!(!code.is(shown), "{shown}");
        }
        assert_ne!(text, FirstCode::default().text());
        assert!(!format!("{code:?}").contains(&text));
    }
}
