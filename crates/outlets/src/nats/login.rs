//! Who an outlet or an inlet is for a NATS server: a user with a password, a token, or a key that signs what the server gives.

use std::fmt;

use async_nats::{Auth, AuthError};
use nkeys::KeyPair;

use crate::definition::NatsServersDefinition;
use crate::secret::read_secret;

/// Before the token in a file of credentials, in the line before it.
const TOKEN_BEGINS: &str = "-----BEGIN NATS USER JWT-----";

/// Before the seed of the key in a file of credentials, in the line before it.
const SEED_BEGINS: &str = "-----BEGIN USER NKEY SEED-----";

/// What the server is told.
pub(super) enum Login {
    /// Nothing.
    None,
    User {
        user: String,
        password: String,
    },
    Token(String),
    /// `token`: a JSON Web Token that says whose the key is; without one the server knows the key itself.
    Key {
        token: Option<String>,
        pair: Box<KeyPair>,
    },
}

// Nothing of it is to be written anywhere.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

impl Login {
    /// Reads the files that a definition names.
    ///
    /// # Errors
    /// More than one way is named, or half of one; a file cannot be read, or has nothing that fits.
    pub(super) fn read(definition: &NatsServersDefinition) -> Result<Self, String> {
        let NatsServersDefinition {
            user,
            password_file,
            token_file,
            credentials_file,
            ..
        } = definition;
        let ways = [
            user.is_some(),
            token_file.is_some(),
            credentials_file.is_some(),
        ];
        if ways.into_iter().filter(|is_named| *is_named).count() > 1 {
            return Err("expected one of `user`, `tokenFile` and `credentialsFile`".to_owned());
        }
        let read = |path: &std::path::Path| {
            let secret = read_secret(path)?;
            String::from_utf8(secret).map_err(|_| format!("{}: no UTF-8", path.display()))
        };
        match (user, password_file) {
            (Some(user), Some(path)) => {
                return Ok(Self::User {
                    user: user.clone(),
                    password: read(path)?,
                });
            }
            (None, None) => {}
            _ => return Err("`user` and `passwordFile` go together".to_owned()),
        }
        if let Some(path) = token_file {
            return Ok(Self::Token(read(path)?));
        }
        let Some(path) = credentials_file else {
            return Ok(Self::None);
        };
        Self::parse_credentials(&read(path)?).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// A file that `nsc` writes, with a token and a seed, or a seed alone.
    fn parse_credentials(text: &str) -> Result<Self, String> {
        let behind = |begins: &str| {
            let mut lines = text.lines().map(str::trim);
            lines.find(|line| *line == begins)?;
            lines.next().filter(|line| !line.is_empty())
        };
        let token = behind(TOKEN_BEGINS);
        let seed = match (token, behind(SEED_BEGINS)) {
            (_, Some(seed)) => seed,
            (Some(_), None) => return Err("there is a JWT, but no seed of an NKEY".to_owned()),
            (None, None) => text.trim(),
        };
        // The library's errors may quote the seed.
        let pair =
            KeyPair::from_seed(seed).map_err(|_| "there is no seed of an NKEY".to_owned())?;
        Ok(Self::Key {
            token: token.map(str::to_owned),
            pair: Box::new(pair),
        })
    }

    /// What goes in CONNECT. `nonce`: what the server wants signed.
    pub(super) fn auth(&self, nonce: &[u8]) -> Result<Auth, AuthError> {
        let mut auth = Auth::new();
        match self {
            Self::None => {}
            Self::User { user, password } => {
                auth.username = Some(user.clone());
                auth.password = Some(password.clone());
            }
            Self::Token(token) => auth.token = Some(token.clone()),
            Self::Key { token, pair } => {
                let signature = pair.sign(nonce).map_err(AuthError::new)?;
                auth.signature = Some(signature);
                auth.jwt.clone_from(token);
                if token.is_none() {
                    auth.nkey = Some(pair.public_key());
                }
            }
        }
        Ok(auth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_have_a_token_and_a_seed_or_a_seed_alone() {
        let pair = KeyPair::new_user();
        let seed = pair.seed().unwrap();
        let both = format!(
            "{TOKEN_BEGINS}\neyJ0.e30.c2ln\n------END NATS USER JWT------\n\n{SEED_BEGINS}\n{seed}\n------END USER NKEY SEED------\n"
        );
        let auth = Login::parse_credentials(&both).unwrap().auth(b"nonce");
        let auth = auth.unwrap();
        assert_eq!(auth.jwt.as_deref(), Some("eyJ0.e30.c2ln"));
        assert_eq!(auth.nkey, None);
        pair.verify(b"nonce", &auth.signature.unwrap()).unwrap();
        let auth = Login::parse_credentials(&seed).unwrap().auth(b"nonce");
        assert_eq!(auth.unwrap().nkey, Some(pair.public_key()));
        let half = format!("{TOKEN_BEGINS}\neyJ0.e30.c2ln\n");
        for wrong in [half.as_str(), "", "SUAX", &seed[1..]] {
            let why = Login::parse_credentials(wrong).unwrap_err();
            assert!(why.contains("NKEY") && !why.contains("SUAX"), "{why}");
        }
    }
}
