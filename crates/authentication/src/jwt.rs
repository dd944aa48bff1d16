//! JSON Web Tokens (RFC 7519): who a client is, and what it may do, signed by somebody who knows.
//!
//! Invariants: a token counts only if one of the configured keys has signed it, by an algorithm of that
//! key's type; there is no token without a signature. Claims are looked at after that.

mod acl_claim;
mod key_server;
mod keys;
mod published;

use std::{path::Path, str, sync::Arc};

use config::{JwtConfig, JwtFrom};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};

use authentication_api::{Credentials, Denial, Identity};

use crate::{
    authenticator::{Asked, Authenticator, Opinion},
    chain::Shared,
    file::{self, MAX_KEY_FILE_BYTES},
};
use key_server::ServedKeys;
use keys::Key;
use published::published_at;

pub(crate) use key_server::KeySets;

type Claims = Map<String, Value>;

/// Takes tokens that are signed by known keys.
#[derive(Debug)]
pub(crate) struct Jwt {
    name: String,
    config: JwtConfig,
    /// Algorithms that are taken; empty: all that keys are for.
    algorithms: Vec<Algorithm>,
    keys: Vec<Key>,
    served: Option<Arc<ServedKeys>>,
}

/// Why a token does not let a client in.
#[derive(Debug)]
enum Refusal {
    /// It is bad.
    Token(String),
    /// It is genuine, and has ended.
    Ended,
    /// There are no keys to tell.
    NoKeys(String),
}

impl Jwt {
    pub(crate) fn open(name: String, config: &JwtConfig, shared: &Shared) -> Result<Self, String> {
        let keys = keys_of_files(config)?;
        let served = served_keys(config, shared)?;
        if keys.is_empty() && served.is_none() {
            return Err(
                "no key: set jwt.secretFile, publicKeyFile, jwksFile or jwksUrl".to_owned(),
            );
        }
        Ok(Self {
            name,
            algorithms: config
                .algorithms
                .iter()
                .map(|name| {
                    name.parse()
                        .map_err(|_| format!("jwt.algorithms: {name} is not known"))
                })
                .collect::<Result<_, _>>()?,
            config: config.clone(),
            keys,
            served,
        })
    }

    /// With one key and no server of keys.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn with_secret(config: JwtConfig, secret: &[u8]) -> Result<Self, String> {
        Ok(Self {
            name: "jwt".to_owned(),
            config,
            algorithms: Vec::new(),
            keys: vec![Key::secret(secret)?],
            served: None,
        })
    }

    /// Whom a token is of, if it is good.
    #[cfg(feature = "fuzzing")]
    pub(crate) async fn identity_of(
        &self,
        token: &str,
        credentials: &Credentials,
    ) -> Option<Identity> {
        let claims = self.claims(token).await.ok()?;
        self.identity(&claims, credentials).ok()
    }

    async fn opinion(&self, credentials: &Credentials) -> Opinion {
        let Some(token) = self.token(credentials) else {
            return Opinion::Ignore;
        };
        let identity = match self.claims(token).await {
            Ok(claims) => self.identity(&claims, credentials).map_err(Refusal::Token),
            Err(refusal) => Err(refusal),
        };
        match identity {
            Ok(identity) => Opinion::Allow(Box::new(identity)),
            Err(Refusal::Token(reason)) => {
                tracing::debug!(authenticator = self.name, "a token is refused: {reason}");
                Opinion::Deny(Denial::Denied)
            }
            Err(Refusal::Ended) => {
                tracing::debug!(authenticator = self.name, "a token has ended");
                Opinion::Deny(Denial::Ended)
            }
            Err(Refusal::NoKeys(reason)) => Opinion::Failed(reason),
        }
    }

    /// What looks like a token: text with two dots.
    fn token<'a>(&self, credentials: &'a Credentials) -> Option<&'a str> {
        let token = match self.config.from {
            JwtFrom::Password => str::from_utf8(credentials.password.as_ref()?.bytes()).ok()?,
            JwtFrom::Username => credentials.username.as_deref()?,
        };
        (token.matches('.').count() == 2).then_some(token)
    }

    /// The claims of a token that is valid now.
    async fn claims(&self, token: &str) -> Result<Claims, Refusal> {
        let header = decode_header(token).map_err(|error| Refusal::Token(error.to_string()))?;
        self.check_header(&header).map_err(Refusal::Token)?;
        let validation = self.validation(header.alg);
        let verified = |keys: &[Key]| verified(token, &header, keys, &validation);
        match (verified(&self.keys), &self.served) {
            (Err(Refusal::Token(_)), Some(served)) => {
                let keys = served.keys_for(header.kid.as_deref()).await;
                verified(&keys.map_err(Refusal::NoKeys)?)
            }
            (result, _) => result,
        }
    }

    fn check_header(&self, header: &Header) -> Result<(), String> {
        if !self.algorithms.is_empty() && !self.algorithms.contains(&header.alg) {
            return Err(format!("{:?} is not among the algorithms", header.alg));
        }
        // RFC 7515 §4.1.11: none of the extensions that must be understood is.
        match &header.crit {
            Some(_) => Err("it has critical extensions".to_owned()),
            None => Ok(()),
        }
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = self.config.leeway.as_secs();
        validation.validate_nbf = true;
        // Whether tokens end is the issuer's decision.
        validation.required_spec_claims.clear();
        if let Some(issuer) = &self.config.issuer {
            validation.set_issuer(&[issuer]);
            validation.required_spec_claims.insert("iss".to_owned());
        }
        validation.validate_aud = self.config.audience.is_some();
        if let Some(audience) = &self.config.audience {
            validation.set_audience(&[audience]);
            validation.required_spec_claims.insert("aud".to_owned());
        }
        validation
    }

    /// Who the client is, if the claims are about it.
    fn identity(&self, claims: &Claims, credentials: &Credentials) -> Result<Identity, String> {
        if let Some(claim) = &self.config.client_id_claim
            && text(claims, claim)? != &*credentials.client_id
        {
            return Err(format!("{claim} is not the client identifier"));
        }
        let rules = match claims.get(&self.config.acl_claim) {
            Some(claim) => Some(Arc::new(acl_claim::read(claim)?)),
            None => None,
        };
        Ok(Identity {
            username: self.username(claims, credentials)?,
            rules,
            expires_at: self.expires_at(claims),
            class: self.class(claims)?,
            ..Identity::default()
        })
    }

    /// The name that the token confirms. What a client says besides counts for nothing, unless it differs.
    fn username(
        &self,
        claims: &Claims,
        credentials: &Credentials,
    ) -> Result<Option<Box<str>>, String> {
        let Some(claim) = &self.config.username_claim else {
            return Ok(None);
        };
        let username = text(claims, claim)?;
        let said = match self.config.from {
            JwtFrom::Password => credentials.username.as_deref(),
            JwtFrom::Username => None,
        };
        if said.is_some_and(|said| said != username) {
            return Err(format!("{claim} is not the user name"));
        }
        Ok(Some(username.into()))
    }

    /// The class that the token names, if it has the claim.
    fn class(&self, claims: &Claims) -> Result<Option<Box<str>>, String> {
        let claim = self.config.class_claim.as_deref();
        let claim = claim.filter(|claim| claims.contains_key(*claim));
        let class = claim.map(|claim| text(claims, claim)).transpose()?;
        Ok(class.map(Box::from))
    }

    /// A token is taken until its end and the leeway, and so long the client may stay.
    fn expires_at(&self, claims: &Claims) -> Option<u64> {
        let end = claims.get("exp")?;
        let end = end
            .as_u64()
            .or_else(|| end.as_f64().map(|end| end as u64))?;
        let expires_at = end.saturating_add(self.config.leeway.as_secs());
        self.config.disconnect_at_expiry.then_some(expires_at)
    }
}

impl Authenticator for Jwt {
    fn name(&self) -> &str {
        &self.name
    }

    fn authenticate<'a>(&'a self, credentials: &'a Credentials) -> Asked<'a> {
        Box::pin(self.opinion(credentials))
    }
}

fn keys_of_files(config: &JwtConfig) -> Result<Vec<Key>, String> {
    let mut keys = Vec::new();
    if let Some(path) = &config.secret_file {
        keys.push(from_file(path, Key::secret)?);
    }
    if let Some(path) = &config.public_key_file {
        keys.push(from_file(path, Key::public)?);
    }
    if let Some(path) = &config.jwks_file {
        keys.extend(from_file(path, Key::set)?);
    }
    Ok(keys)
}

fn served_keys(config: &JwtConfig, shared: &Shared) -> Result<Option<Arc<ServedKeys>>, String> {
    let Some(url) = &config.jwks_url else {
        return Ok(None);
    };
    let (sets, runtime) = (&shared.key_sets, &shared.runtime);
    let keys = sets.get(url, config.jwks_refresh, runtime, || published_at(url))?;
    Ok(Some(keys))
}

fn from_file<T>(path: &Path, read: impl Fn(&[u8]) -> Result<T, String>) -> Result<T, String> {
    let content = file::read(path, MAX_KEY_FILE_BYTES)?;
    read(&content).map_err(|reason| format!("{}: {reason}", path.display()))
}

/// The claims, if one of the keys has signed them and they are valid now.
fn verified(
    token: &str,
    header: &Header,
    keys: &[Key],
    validation: &Validation,
) -> Result<Claims, Refusal> {
    let mut reason = "no key is for it".to_owned();
    for key in keys.iter().filter(|key| key.suits(header)) {
        match decode(token, key.decoding_key(), validation) {
            Ok(token) => return Ok(token.claims),
            // The signature is looked at first.
            Err(error) if matches!(error.kind(), ErrorKind::ExpiredSignature) => {
                return Err(Refusal::Ended);
            }
            Err(error) => reason = error.to_string(),
        }
    }
    Err(Refusal::Token(reason))
}

fn text<'a>(claims: &'a Claims, name: &str) -> Result<&'a str, String> {
    claims
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("{name} is missing or no text"))
}

#[cfg(test)]
mod tests;
