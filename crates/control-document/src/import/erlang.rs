//! Terms of Erlang as text, as far as `acl.conf` has them: atoms, strings, binaries, numbers, tuples and lists.

use std::iter::Peekable;
use std::str::Chars;

use super::ImportError;

/// How deep terms may be nested.
const DEPTH: usize = 32;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Term {
    Atom(String),
    /// A string or a binary.
    Text(String),
    Number(String),
    Tuple(Vec<Self>),
    List(Vec<Self>),
}

/// A term with a full stop behind it.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Form {
    /// Where it begins.
    pub(super) line: usize,
    pub(super) term: Term,
}

/// Reads all terms of a file.
pub(super) fn parse(text: &str) -> Result<Vec<Form>, ImportError> {
    let mut reader = Reader {
        rest: text.chars().peekable(),
        line: 1,
    };
    let mut forms = Vec::new();
    loop {
        reader.skip();
        if reader.rest.peek().is_none() {
            return Ok(forms);
        }
        let line = reader.line;
        let term = reader.term(0)?;
        reader.expect('.', "a full stop")?;
        forms.push(Form { line, term });
    }
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
}

impl Reader<'_> {
    fn error(&self, reason: impl Into<String>) -> ImportError {
        ImportError::in_line(self.line, reason)
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        if next == Some('\n') {
            self.line += 1;
        }
        next
    }

    fn next_if(&mut self, wanted: char) -> bool {
        let is_there = self.rest.peek() == Some(&wanted);
        if is_there {
            self.next();
        }
        is_there
    }

    /// Skips blanks and comments.
    fn skip(&mut self) {
        while let Some(character) = self.rest.peek() {
            match character {
                '%' => while self.next().is_some_and(|character| character != '\n') {},
                character if character.is_whitespace() => {
                    self.next();
                }
                _ => return,
            }
        }
    }

    fn expect(&mut self, wanted: char, what: &str) -> Result<(), ImportError> {
        self.skip();
        match self.next_if(wanted) {
            true => Ok(()),
            false => Err(self.error(format!("{what} is expected here"))),
        }
    }

    fn term(&mut self, depth: usize) -> Result<Term, ImportError> {
        if depth == DEPTH {
            return Err(self.error(format!("terms are nested more than {DEPTH} deep")));
        }
        self.skip();
        match self.rest.peek().copied() {
            Some('{') => Ok(Term::Tuple(self.terms('}', depth)?)),
            Some('[') => Ok(Term::List(self.terms(']', depth)?)),
            Some('"') => Ok(Term::Text(self.quoted('"')?)),
            Some('\'') => Ok(Term::Atom(self.quoted('\'')?)),
            Some('<') => self.binary(),
            Some(first) if first.is_ascii_digit() || first == '-' => {
                self.next();
                let digits = self.word();
                Ok(Term::Number(format!("{first}{digits}")))
            }
            Some(first) if first.is_lowercase() => Ok(Term::Atom(self.word())),
            Some(other) => Err(self.error(format!("{other:?} begins no term"))),
            None => Err(self.error("the text ends where a term is expected")),
        }
    }

    /// What stands between brackets, of which the first is next.
    fn terms(&mut self, close: char, depth: usize) -> Result<Vec<Term>, ImportError> {
        self.next();
        let mut terms = Vec::new();
        self.skip();
        if self.next_if(close) {
            return Ok(terms);
        }
        loop {
            terms.push(self.term(depth + 1)?);
            self.skip();
            if self.next_if(close) {
                return Ok(terms);
            }
            if !self.next_if(',') {
                return Err(self.error(format!("a comma or {close:?} is expected here")));
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(character) = self.rest.peek().copied() {
            if !character.is_alphanumeric() && !matches!(character, '_' | '@') {
                break;
            }
            word.push(character);
            self.next();
        }
        word
    }

    fn binary(&mut self) -> Result<Term, ImportError> {
        for _ in 0..2 {
            self.expect('<', "<<\"…\">>")?;
        }
        self.skip();
        if self.rest.peek() != Some(&'"') {
            return Err(self.error("a string is expected in a binary"));
        }
        let text = self.quoted('"')?;
        self.skip();
        if self.next_if('/') && self.word() != "utf8" {
            return Err(self.error("only the type utf8 is known in a binary"));
        }
        for _ in 0..2 {
            self.expect('>', ">>")?;
        }
        Ok(Term::Text(text))
    }

    /// What stands between quotation marks, of which the first is next.
    fn quoted(&mut self, mark: char) -> Result<String, ImportError> {
        let begin = self.line;
        self.next();
        let mut text = String::new();
        let open = || ImportError::in_line(begin, "a quotation mark is not closed");
        loop {
            match self.next().ok_or_else(open)? {
                character if character == mark => return Ok(text),
                '\\' => text.push(match self.next().ok_or_else(open)? {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    's' => ' ',
                    mark @ ('"' | '\'' | '\\') => mark,
                    // The others of Erlang are for characters that no name or topic has.
                    other => {
                        return Err(self.error(format!("the escape \\{other} is not known")));
                    }
                }),
                character => text.push(character),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(text: &str) -> Term {
        let mut forms = parse(text).unwrap();
        assert_eq!(forms.len(), 1);
        forms.remove(0).term
    }

    #[test]
    fn terms_are_read() {
        let text = |text: &str| Term::Text(text.to_owned());
        let atom = |text: &str| Term::Atom(text.to_owned());
        assert_eq!(
            term("{allow, {'and', [{user, \"a\\\"b\"}]}, 7, [<<\"t\"/utf8>>, []]}."),
            Term::Tuple(vec![
                atom("allow"),
                Term::Tuple(vec![
                    atom("and"),
                    Term::List(vec![Term::Tuple(vec![atom("user"), text("a\"b")])])
                ]),
                Term::Number("7".to_owned()),
                Term::List(vec![text("t"), Term::List(Vec::new())]),
            ])
        );
        let forms = parse("%% a\na. % b\n\n {b\n}.").unwrap();
        let lines: Vec<usize> = forms.iter().map(|form| form.line).collect();
        assert_eq!(lines, [2, 4]);
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, at) in [
            ("\n{allow", "line 2"),
            ("a", "line 1"),
            ("a.\n\"b", "line 2"),
            ("{a b}.", "line 1"),
            ("A.", "line 1"),
            ("\"\\x41\".", "line 1"),
            ("<<1>>.", "line 1"),
        ] {
            assert_eq!(parse(text).unwrap_err().at, at, "{text}");
        }
        let deep = "[".repeat(100_000);
        let error = parse(&deep).unwrap_err();
        assert!(error.reason.contains("nested"), "{error}");
    }
}
