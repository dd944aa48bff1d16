//! Marks in the comments of a file.

/// What a mark begins with, behind `///` or `//`.
const BEGINS: &str = "Limit: ";

/// A mark as it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) path: String,
    /// Where it begins, from 1.
    pub(super) line: usize,
    /// What is behind `Limit:`, on one line.
    pub(super) text: String,
    /// The constant that the comment is of, if it is of one.
    pub(super) constant: Option<String>,
}

/// The marks of a file, in their order. `tests`: for each line, whether it is for tests only, which have none.
pub(super) fn marks(path: &str, text: &str, tests: &[bool]) -> Vec<Mark> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let begins = comment(line).and_then(|text| text.strip_prefix(BEGINS));
        let is_test = tests.get(index).is_some_and(|test| *test);
        if let Some(first) = begins.filter(|_| !is_test) {
            let behind = lines.get(index + 1..).unwrap_or_default();
            let further = behind
                .iter()
                .map_while(|line| comment(line))
                .take_while(|text| !text.is_empty() && !text.starts_with(BEGINS));
            let text: Vec<&str> = std::iter::once(first).chain(further).collect();
            found.push(Mark {
                path: path.to_owned(),
                line: index + 1,
                text: text.join(" "),
                constant: constant(behind),
            });
        }
    }
    found
}

/// The text of a line that is a comment; of `//!` there are no marks.
fn comment(line: &str) -> Option<&str> {
    let text = line
        .strip_prefix("///")
        .or_else(|| line.strip_prefix("//"))?;
    (!text.starts_with('!')).then(|| text.trim())
}

/// The constant that is declared behind the rest of a comment and attributes.
fn constant(lines: &[&str]) -> Option<String> {
    let code = lines
        .iter()
        .find(|line| comment(line).is_none() && !line.starts_with("#["))?;
    let (before, declared) = code.split_once("const ")?;
    let (name, _) = declared.split_once(':')?;
    let is_declaration = before.is_empty() || before.starts_with("pub");
    let is_name = name
        .chars()
        .all(|letter| letter == '_' || letter.is_ascii_uppercase() || letter.is_ascii_digit());
    (is_declaration && is_name).then(|| name.to_owned())
}
