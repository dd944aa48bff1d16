//! The headers of each request, from a file: one `Name: value` a line. Errors name lines, never values.

use std::path::Path;

use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};

/// Longest file.
const MAX_BYTES: usize = 65_536;

/// Reads the headers of a file of at most 64 KiB. Empty lines are left out.
///
/// # Errors
/// Why the file cannot be read, or which line is no header.
pub fn read(path: &Path) -> Result<HeaderMap, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    if text.len() > MAX_BYTES {
        return Err(format!("larger than {MAX_BYTES} bytes"));
    }
    parse(&text)
}

fn parse(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let (name, value) =
            header(line).ok_or_else(|| format!("line {}: expected `Name: value`", index + 1))?;
        if [CONTENT_LENGTH, CONTENT_TYPE, HOST].contains(&name) {
            return Err(format!(
                "line {}: {name} is set by the node itself",
                index + 1
            ));
        }
        headers.append(name, value);
    }
    Ok(headers)
}

fn header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let mut value = HeaderValue::from_str(value.trim()).ok()?;
    value.set_sensitive(true);
    Some((name.trim().parse().ok()?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_lines_and_errors_keep_their_values() {
        let headers = parse("Authorization: Bearer a:b\n\nX-Scope: 1\r\n").unwrap();
        assert_eq!(headers["authorization"], "Bearer a:b");
        assert_eq!(headers["x-scope"], "1");
        for (text, line) in [
            ("a: b\nsecret", "line 2"),
            ("se cret: x", "line 1"),
            ("secret: \u{1}", "line 1"),
            ("Host: secret", "line 1"),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.starts_with(line), "{problem}");
            assert!(!problem.contains("secret"), "{problem}");
        }
    }
}
