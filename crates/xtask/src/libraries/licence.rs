//! Licence expressions as crates give them (SPDX, annex D): `OR`, or `/` as older crates have it, `AND`, `WITH`, and
//! parentheses. `AND` binds stronger than `OR`.

/// Whether the expression can be met with these licences alone. What is no expression cannot.
pub(super) fn is_met(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut reader = Reader {
        words: spaced.split_whitespace().collect(),
        at: 0,
        allowed,
    };
    let met = reader.any();
    met == Some(true) && reader.at == reader.words.len()
}

struct Reader<'a> {
    words: Vec<&'a str>,
    at: usize,
    allowed: &'a [&'a str],
}

impl<'a> Reader<'a> {
    fn any(&mut self) -> Option<bool> {
        let mut met = self.all()?;
        while self.takes("OR") {
            met |= self.all()?;
        }
        Some(met)
    }

    fn all(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.takes("AND") {
            met &= self.one()?;
        }
        Some(met)
    }

    fn one(&mut self) -> Option<bool> {
        if self.takes("(") {
            let met = self.any()?;
            return self.takes(")").then_some(met);
        }
        let licence = self.next()?;
        // An exception allows more than the licence alone.
        if self.takes("WITH") {
            self.next()?;
        }
        Some(self.allowed.contains(&licence))
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.words.get(self.at) == Some(&word);
        self.at += usize::from(is_next);
        is_next
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = *self.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_as_spdx_says() {
        for (expression, expect) in [
            ("MIT", true),
            ("MIT OR GPL-2.0-only", true),
            ("GPL-2.0-only/MIT", true),
            ("GPL-2.0-only", false),
            ("MIT AND GPL-2.0-only", false),
            ("MIT AND (GPL-2.0-only OR ISC)", true),
            ("ISC OR MIT AND GPL-2.0-only", true),
            ("(ISC OR MIT) AND GPL-2.0-only", false),
            ("ISC WITH LLVM-exception OR X", true),
            ("", false),
            ("MIT ISC", false),
            ("(MIT", false),
            ("MIT OR", false),
        ] {
            assert_eq!(is_met(expression, &["MIT", "ISC"]), expect, "{expression}");
        }
    }
}
