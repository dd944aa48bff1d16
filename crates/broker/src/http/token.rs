//! The secret that requests which change something must show.

use std::path::Path;
use std::{fmt, fs, io};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{Api, sentence};

/// A bearer token (RFC 6750).
pub(crate) struct Token(Zeroizing<Vec<u8>>);

impl Token {
    /// The content of a file, without white space around it.
    ///
    /// # Errors
    /// The file cannot be read, or is empty.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let content = Zeroizing::new(fs::read(path)?);
        match content.trim_ascii() {
            b"" => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file is empty",
            )),
            token => Ok(Self(Zeroizing::new(token.to_vec()))),
        }
    }

    /// Whether somebody knows it. How long that takes depends on the length alone.
    fn is(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Lets a request through that shows the token.
pub(super) async fn authorize(State(api): State<Api>, request: Request, next: Next) -> Response {
    let known = match &*api.node.rim.http_token.read() {
        None => {
            let help = "http.tokenFile is not set: nothing can be changed by HTTP";
            return sentence(StatusCode::FORBIDDEN, help);
        }
        Some(token) => shown(&request).is_some_and(|shown| token.is(shown)),
    };
    if known {
        return next.run(request).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    let answer = sentence(
        StatusCode::UNAUTHORIZED,
        "this needs the header `Authorization: Bearer` with the token of http.tokenFile",
    );
    (challenge, answer).into_response()
}

fn shown(request: &Request) -> Option<&[u8]> {
    let header = request.headers().get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = header.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then_some(token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(content: &str) -> io::Result<Token> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        Token::read(file.path())
    }

    #[test]
    fn a_token_is_known_in_full_only() {
        let token = token("secret\n").unwrap();
        assert!(token.is(b"secret"));
        for shown in ["", "secre", "secrets", "Secret", "secret\n"] {
            assert!(!token.is(shown.as_bytes()), "{shown}");
        }
        assert!(!format!("{token:?}").contains("secret"));
    }

    #[test]
    fn an_empty_token_is_none() {
        assert!(token(" \n").is_err());
    }
}
