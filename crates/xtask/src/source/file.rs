//! A Rust file: its tokens, and which of them are compiled for tests only.
//!
//! Test code is: a file named `tests.rs` or in a folder `tests`; a file that begins with `#![cfg(test)]`, or whose `mod`
//! declaration is for tests only; an item under `#[cfg(test)]`, `#[cfg(all(test, …))]` or `#[test]`.

use super::lexer::{Kind, Span, Token, lex};

/// A Rust file of a workspace.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Relative to the root of the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    /// For each token, whether it is compiled for tests only.
    test: Vec<bool>,
    whole_test: bool,
}

impl SourceFile {
    /// `path` is relative to the root of the workspace.
    pub(crate) fn new(path: &str, text: String) -> Self {
        let tokens = lex(&text);
        let mut file = Self {
            path: path.to_owned(),
            test: vec![false; tokens.len()],
            whole_test: path.ends_with("/tests.rs") || path.contains("/tests/"),
            text,
            tokens,
        };
        if file.find_inner_attribute() {
            file.whole_test = true;
        }
        file.mark_items();
        file
    }

    /// The file is declared for tests only.
    pub(crate) fn set_test(&mut self) {
        self.whole_test = true;
    }

    pub(crate) fn is_test_file(&self) -> bool {
        self.whole_test
    }

    /// Whether the token of this index is compiled for tests only.
    pub(crate) fn is_test(&self, index: usize) -> bool {
        self.whole_test || self.test.get(index).is_some_and(|test| *test)
    }

    /// The token of this index as text; empty behind the last one.
    pub(crate) fn at(&self, index: usize) -> &str {
        self.tokens
            .get(index)
            .map_or("", |token| self.part(token.span))
    }

    pub(crate) fn kind(&self, index: usize) -> Option<Kind> {
        self.tokens.get(index).map(|token| token.kind)
    }

    /// The line of the token of this index.
    pub(crate) fn line(&self, index: usize) -> usize {
        self.tokens.get(index).map_or(0, |token| token.span.line)
    }

    /// A part of the text.
    pub(crate) fn part(&self, span: Span) -> &str {
        self.text.get(span.start..span.end).unwrap_or("")
    }

    /// Whether the tokens from this index on are these.
    pub(crate) fn begins(&self, index: usize, wanted: &[&str]) -> bool {
        wanted
            .iter()
            .enumerate()
            .all(|(ahead, wanted)| self.at(index + ahead) == *wanted)
    }

    /// The indices of tokens that are not for tests only.
    pub(crate) fn code(&self) -> impl Iterator<Item = usize> {
        (0..self.tokens.len()).filter(|index| !self.is_test(*index))
    }

    /// Behind the bracket that closes the one at this index.
    pub(crate) fn behind_bracket(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for index in open..self.tokens.len() {
            match self.at(index) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return index + 1;
                    }
                }
                _ => {}
            }
        }
        self.tokens.len()
    }

    /// Behind the attributes that begin at this index.
    pub(crate) fn behind_attributes(&self, mut index: usize) -> usize {
        while self.begins(index, &["#", "["]) {
            index = self.behind_bracket(index + 1);
        }
        index
    }

    /// Behind `pub`, `pub(crate)` and the like, if it stands at this index.
    pub(crate) fn behind_visibility(&self, index: usize) -> usize {
        if self.at(index) != "pub" {
            return index;
        }
        let restricted = self.at(index + 1) == "("
            && matches!(self.at(index + 2), "crate" | "super" | "self" | "in");
        if restricted {
            self.behind_bracket(index + 1)
        } else {
            index + 1
        }
    }

    /// For each line of the text, whether it is for tests only.
    pub(crate) fn test_lines(&self) -> Vec<bool> {
        let mut marks = vec![self.whole_test; self.text.lines().count()];
        let mut index = 0;
        while index < self.tokens.len() {
            let from = index;
            while self.test.get(index).is_some_and(|test| *test) {
                index += 1;
            }
            if index > from {
                let last = self.tokens.get(index - 1).map_or(0, |token| {
                    token.span.line + self.part(token.span).matches('\n').count()
                });
                for mark in marks
                    .iter_mut()
                    .take(last)
                    .skip(self.line(from).saturating_sub(1))
                {
                    *mark = true;
                }
            }
            index += 1;
        }
        marks
    }

    fn find_inner_attribute(&self) -> bool {
        let inner = ["#", "!", "[", "cfg", "(", "test", ")", "]"];
        (0..self.tokens.len()).any(|index| self.at(index) == "#" && self.begins(index, &inner))
    }

    fn mark_items(&mut self) {
        let mut index = 0;
        while index < self.tokens.len() {
            let begins = self.begins(index, &["#", "[", "cfg", "(", "test", ")"])
                || self.begins(index, &["#", "[", "cfg", "(", "all", "(", "test", ","])
                || self.begins(index, &["#", "[", "test", "]"]);
            if !begins {
                index += 1;
                continue;
            }
            let end = self.behind_item(index);
            if let Some(marks) = self.test.get_mut(index..end) {
                marks.fill(true);
            }
            index = end.max(index + 1);
        }
    }

    /// Behind the item, field, variant, arm or statement whose attributes begin at this index.
    fn behind_item(&self, start: usize) -> usize {
        let mut index = self.behind_visibility(self.behind_attributes(start));
        // In these, commas stand between generic parameters and bounds.
        let is_item = matches!(
            self.at(index),
            "fn" | "impl"
                | "struct"
                | "enum"
                | "union"
                | "trait"
                | "mod"
                | "use"
                | "type"
                | "const"
                | "static"
                | "unsafe"
                | "async"
                | "extern"
                | "let"
        );
        while index < self.tokens.len() {
            match self.at(index) {
                "{" => {
                    index = self.behind_bracket(index);
                    if self.at(index) == ";" || (!is_item && self.at(index) == ",") {
                        return index + 1;
                    }
                    if !matches!(self.at(index), "else" | "." | "?") {
                        return index;
                    }
                }
                "(" | "[" => index = self.behind_bracket(index),
                ")" | "]" | "}" => return index,
                ";" => return index + 1,
                "," if !is_item => return index + 1,
                _ => index += 1,
            }
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a text that are for tests only.
    fn check(text: &str, expect: &[usize]) {
        let file = SourceFile::new("crates/a/src/b.rs", text.to_owned());
        let found: Vec<usize> = file
            .test_lines()
            .iter()
            .enumerate()
            .filter(|(_, test)| **test)
            .map(|(index, _)| index + 1)
            .collect();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn a_test_module_ends_where_it_ends() {
        check(
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\" }\n}\nfn c() {}\n",
            &[2, 3, 4, 5],
        );
    }

    #[test]
    fn fields_variants_and_functions_may_be_for_tests_only() {
        check(
            "struct A<T, U> {\n    #[cfg(test)]\n    b: Vec<u8>,\n    c: u8,\n}\n",
            &[2, 3],
        );
        check(
            "enum A {\n    #[cfg(test)]\n    B { c: u8 },\n    D,\n}\n",
            &[2, 3],
        );
        check(
            "#[cfg(all(test, unix))]\nfn a<T, U>(b: T) -> Vec<U>\nwhere\n    T: X,\n    U: Y,\n{\n}\nfn c() {}\n",
            &[1, 2, 3, 4, 5, 6, 7],
        );
        check(
            "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse a::{b, c};\nfn d() {}\n",
            &[1, 2, 3, 4],
        );
    }

    #[test]
    fn files_of_tests_are_tests() {
        for path in [
            "crates/a/src/b/tests.rs",
            "crates/a/tests/b.rs",
            "crates/a/src/tests/b.rs",
        ] {
            assert!(
                SourceFile::new(path, String::new()).is_test_file(),
                "{path}"
            );
        }
        let inner = "//! Vectors.\n#![cfg(test)]\n".to_owned();
        assert!(SourceFile::new("crates/a/src/b.rs", inner).is_test_file());
        assert!(!SourceFile::new("crates/a/src/b.rs", String::new()).is_test_file());
    }
}
