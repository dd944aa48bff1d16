//! Paths of a file: what `use` brings, and what code names.

use super::file::SourceFile;
use super::lexer::Kind;

/// What the `use` at this index brings: names and paths, `*` being the name of all; and the index behind it.
pub(crate) fn imports(file: &SourceFile, index: usize) -> (Vec<(String, Vec<String>)>, usize) {
    let mut found = Vec::new();
    let end = tree(file, index + 1, &mut Vec::new(), &mut found);
    (found, end + 1)
}

/// All paths of a file, as they are written, with their lines: those of `use`, and those in code. Tests are left out.
pub(crate) fn paths(file: &SourceFile) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    let mut behind = 0;
    for index in file.code() {
        if index < behind || file.kind(index) != Some(Kind::Word) {
            continue;
        }
        if file.at(index) == "use" {
            let (brought, end) = imports(file, index);
            found.extend(brought.into_iter().map(|(name, mut path)| {
                if name == "*" {
                    path.push(name);
                }
                (path, file.line(index))
            }));
            behind = end;
            continue;
        }
        let mut path = vec![file.at(index).to_owned()];
        behind = index + 1;
        while file.at(behind) == "::" && file.kind(behind + 1) == Some(Kind::Word) {
            path.push(file.at(behind + 1).to_owned());
            behind += 2;
        }
        found.push((path, file.line(index)));
    }
    found
}

/// Reads a tree of a `use` from this index on; returns the index of what ends it.
fn tree(
    file: &SourceFile,
    mut index: usize,
    prefix: &mut Vec<String>,
    found: &mut Vec<(String, Vec<String>)>,
) -> usize {
    let depth = prefix.len();
    let mut done = false;
    while index < file.tokens.len() {
        match file.at(index) {
            "," | "}" | ";" => break,
            "::" => index += 1,
            "*" => {
                found.push(("*".to_owned(), prefix.clone()));
                done = true;
                index += 1;
            }
            "{" => {
                let end = file.behind_bracket(index);
                index += 1;
                while index + 1 < end {
                    index = tree(file, index, prefix, found) + 1;
                }
                done = true;
                index = end;
            }
            "as" => {
                found.push((file.at(index + 1).to_owned(), prefix.clone()));
                done = true;
                index += 2;
            }
            // `{self, b}`
            "self" if depth > 0 && prefix.len() == depth => index += 1,
            part => {
                prefix.push(part.to_owned());
                index += 1;
            }
        }
    }
    if !done && let Some(name) = prefix.last() {
        found.push((name.clone(), prefix.clone()));
    }
    prefix.truncate(depth);
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_imports_and_of_code() {
        let text = "use a::{self, b::{C as D, e}, f::*};\nfn g() -> h::I { j.k::<l>(); }\n#[cfg(test)]\nuse m::n;\n";
        let file = SourceFile::new("crates/a/src/b.rs", text.to_owned());
        let found: Vec<String> = paths(&file)
            .into_iter()
            .map(|(path, line)| format!("{line} {}", path.join("::")))
            .collect();
        assert_eq!(
            found,
            [
                "1 a",
                "1 a::b::C",
                "1 a::b::e",
                "1 a::f::*",
                "2 fn",
                "2 g",
                "2 h::I",
                "2 j",
                "2 k",
                "2 l",
            ]
        );
    }
}
