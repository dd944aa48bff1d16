//! An error in one line, with what caused it.

use std::error::Error;

/// The error's own words and those of its causes, as `a: b: c`. Libraries say little in the first.
pub fn with_causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        // Some repeat their cause themselves.
        if !line.ends_with(&words) {
            line.push_str(": ");
            line.push_str(&words);
        }
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::with_causes;

    #[test]
    fn each_cause_is_said_once() {
        let inner = io::Error::new(io::ErrorKind::NotFound, "no such host");
        let outer = io::Error::other(format!("connecting: {inner}"));
        assert_eq!(with_causes(&outer), "connecting: no such host");
        let parsed = "x".parse::<std::net::IpAddr>().unwrap_err();
        assert_eq!(with_causes(&parsed), "invalid IP address syntax");
    }
}
