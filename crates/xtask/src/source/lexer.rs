//! Rust source as tokens: words, numbers, quoted text, punctuation.
//!
//! Invariant: every byte of the input is whitespace, part of a comment, or part of a token. Input that is no Rust gives
//! tokens that mean nothing, never a panic.
//!
//! Deliberately absent: a grammar. The rules of this crate need names, brackets and paths, and a parser would be a
//! dependency.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or a keyword.
    Word,
    Lifetime,
    Number,
    /// A string or character literal.
    Text,
    /// Punctuation. `::`, `->`, `=>`, `<=` and `>=` are one token each, all others are single characters.
    Mark,
}

/// A part of a text, in bytes, and the line that it begins on, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) line: usize,
}

/// A token of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

/// The tokens of a text; comments are left out.
pub(crate) fn lex(text: &str) -> Vec<Token> {
    let mut lexer = Lexer {
        bytes: text.as_bytes(),
        at: 0,
        line: 1,
    };
    let mut tokens = Vec::new();
    while let Some(byte) = lexer.peek(0) {
        if byte.is_ascii_whitespace() {
            lexer.step();
            continue;
        }
        let (start, line) = (lexer.at, lexer.line);
        if let Some(kind) = lexer.token(byte) {
            let span = Span {
                start,
                end: lexer.at,
                line,
            };
            tokens.push(Token { kind, span });
        }
    }
    tokens
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn step(&mut self) {
        if self.peek(0) == Some(b'\n') {
            self.line += 1;
        }
        self.at = self.bytes.len().min(self.at + 1);
    }

    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    fn step_while(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.peek(0).is_some_and(&wanted) {
            self.step();
        }
    }

    /// Steps over the token or comment that begins here. `None`: a comment.
    fn token(&mut self, first: u8) -> Option<Kind> {
        match (first, self.peek(1)) {
            (b'/', Some(b'/')) => {
                self.step_while(|byte| byte != b'\n');
                return None;
            }
            (b'/', Some(b'*')) => {
                self.block_comment();
                return None;
            }
            _ => {}
        }
        if let Some((prefix, hashes)) = self.raw_string() {
            self.steps(prefix + hashes + 1);
            self.raw_text(hashes);
            return Some(Kind::Text);
        }
        Some(match (first, self.peek(1)) {
            (b'"', _) => self.quoted(0, b'"'),
            (b'b' | b'c', Some(b'"')) => self.quoted(1, b'"'),
            (b'b', Some(b'\'')) => self.quoted(1, b'\''),
            (b'\'', _) => self.lifetime_or_character(),
            _ if is_word(first) && !first.is_ascii_digit() => {
                // A raw identifier keeps its prefix.
                if first == b'r' && self.peek(1) == Some(b'#') {
                    self.steps(2);
                }
                self.step_while(is_word);
                Kind::Word
            }
            _ if first.is_ascii_digit() => self.number(),
            (b':', Some(b':')) | (b'-' | b'=', Some(b'>')) | (b'<' | b'>', Some(b'=')) => {
                self.steps(2);
                Kind::Mark
            }
            _ => {
                self.step();
                Kind::Mark
            }
        })
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) => {
                    depth += 1;
                    self.steps(2);
                }
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    self.steps(2);
                    if depth == 0 {
                        return;
                    }
                }
                (Some(_), _) => self.step(),
                (None, _) => return,
            }
        }
    }

    /// The lengths of prefix and hashes of the raw string that begins here.
    fn raw_string(&self) -> Option<(usize, usize)> {
        let prefix = match (self.peek(0)?, self.peek(1)?) {
            (b'r', _) => 1,
            (b'b' | b'c', b'r') => 2,
            _ => return None,
        };
        let mut hashes = 0;
        while self.peek(prefix + hashes) == Some(b'#') {
            hashes += 1;
        }
        (self.peek(prefix + hashes) == Some(b'"')).then_some((prefix, hashes))
    }

    /// The rest of a raw string, behind its opening quote.
    fn raw_text(&mut self, hashes: usize) {
        while let Some(byte) = self.peek(0) {
            self.step();
            if byte == b'"' && (0..hashes).all(|ahead| self.peek(ahead) == Some(b'#')) {
                self.steps(hashes);
                return;
            }
        }
    }

    fn quoted(&mut self, prefix: usize, quote: u8) -> Kind {
        self.steps(prefix + 1);
        while let Some(byte) = self.peek(0) {
            self.step();
            if byte == b'\\' {
                self.step();
            } else if byte == quote {
                break;
            }
        }
        Kind::Text
    }

    fn lifetime_or_character(&mut self) -> Kind {
        // `'a'` and `'é'` are characters, `'a` is a lifetime.
        let mut length = 0;
        while self.peek(1 + length).is_some_and(is_word) {
            length += 1;
        }
        if length > 0 && self.peek(1 + length) != Some(b'\'') {
            self.steps(1 + length);
            return Kind::Lifetime;
        }
        self.quoted(0, b'\'')
    }

    fn number(&mut self) -> Kind {
        self.step_while(is_word);
        // `1.5` goes on, `1..5` and `1.max(2)` do not.
        if self.peek(0) == Some(b'.') && self.peek(1).is_some_and(|byte| byte.is_ascii_digit()) {
            self.step();
            self.step_while(is_word);
        }
        Kind::Number
    }
}

/// Letters of other alphabets count as parts of words.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str]) {
        let tokens = lex(text);
        let found: Vec<&str> = tokens
            .iter()
            .map(|token| &text[token.span.start..token.span.end])
            .collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn paths_arrows_and_numbers_are_single_tokens() {
        check(
            "a::b(1..2, 1.5) -> Vec<Vec<u8>> => r#type >= 0x1F_u8",
            &[
                "a", "::", "b", "(", "1", ".", ".", "2", ",", "1.5", ")", "->", "Vec", "<", "Vec",
                "<", "u8", ">", ">", "=>", "r#type", ">=", "0x1F_u8",
            ],
        );
    }

    #[test]
    fn quoted_text_hides_what_is_in_it() {
        check(
            r###"f("a \" // b", r#"c " d"#, b'\'', '"', 'x', &'x str, b"}", '\u{7f}')"###,
            &[
                "f",
                "(",
                r#""a \" // b""#,
                ",",
                r###"r#"c " d"#"###,
                ",",
                r"b'\''",
                ",",
                "'\"'",
                ",",
                "'x'",
                ",",
                "&",
                "'x",
                "str",
                ",",
                "b\"}\"",
                ",",
                r"'\u{7f}'",
                ")",
            ],
        );
    }

    #[test]
    fn comments_are_left_out_and_their_lines_count() {
        let text = "a /* b /* c */ d */ e\n// f \"g\n/// h\ni";
        check(text, &["a", "e", "i"]);
        assert_eq!(lex(text).last().map(|token| token.span.line), Some(4));
    }

    #[test]
    fn text_that_never_ends_ends_with_the_file() {
        for text in ["\"a", "r##\"a\"#", "'", "b'", "a /*", "1."] {
            let ends: Vec<usize> = lex(text).iter().map(|token| token.span.end).collect();
            assert!(
                ends.is_sorted() && ends.last() <= Some(&text.len()),
                "{text}"
            );
        }
        check("a /* b", &["a"]);
        check("\"a", &["\"a"]);
    }
}
