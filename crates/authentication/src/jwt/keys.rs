//! Keys that verify tokens.
//!
//! Invariant: a key verifies by algorithms of its own type only, whatever a token says; so a public key is
//! never the secret of an HMAC.

use std::{fmt, str};

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, Header,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk},
};
use serde::Deserialize;
use serde_json::Value;

/// The most keys of one set: a token without a key identifier is tried with all of them.
const MAX_KEYS: usize = 100;

/// RFC 7518 §3.2: a secret is not shorter than the hash.
const MIN_SECRET_BYTES: usize = 32;

/// A key, and what it may be used for.
pub(super) struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl Key {
    /// A secret for HMAC: what a file holds, without a line break at its end.
    pub(super) fn secret(content: &[u8]) -> Result<Self, String> {
        let secret = content.strip_suffix(b"\n").unwrap_or(content);
        let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
        if secret.starts_with(b"-----BEGIN ") {
            return Err("a PEM file is no secret: use publicKeyFile".to_owned());
        }
        if secret.len() < MIN_SECRET_BYTES {
            return Err(format!(
                "the secret is shorter than {MIN_SECRET_BYTES} bytes (RFC 7518 §3.2)"
            ));
        }
        Ok(Self::new(DecodingKey::from_secret(secret)))
    }

    /// A public key: RSA, EC or Ed25519.
    pub(super) fn public(pem: &[u8]) -> Result<Self, String> {
        let text = str::from_utf8(pem).map_err(|_| "not a PEM file")?;
        let is_public = ["PUBLIC KEY", "RSA PUBLIC KEY"]
            .iter()
            .any(|tag| text.contains(&format!("-----BEGIN {tag}-----")));
        if !is_public || text.matches("-----BEGIN ").count() != 1 {
            return Err("must hold one public key in PEM, and nothing else".to_owned());
        }
        DecodingKey::from_rsa_pem(pem)
            .or_else(|_| DecodingKey::from_ec_pem(pem))
            .or_else(|_| DecodingKey::from_ed_pem(pem))
            .map(Self::new)
            .map_err(|_| "neither an RSA, nor an EC, nor an Ed25519 key".to_owned())
    }

    /// The keys of a set (RFC 7517). Those that are of no use here are left out (§5), and so are
    /// symmetric ones, since sets are public.
    pub(super) fn set(json: &[u8]) -> Result<Vec<Self>, String> {
        let set: KeySet =
            serde_json::from_slice(json).map_err(|error| format!("not a key set: {error}"))?;
        if set.keys.len() > MAX_KEYS {
            return Err(format!("more than {MAX_KEYS} keys"));
        }
        Ok(set.keys.iter().filter_map(Self::of_set).collect())
    }

    fn of_set(json: &Value) -> Option<Self> {
        if json.get("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let jwk = Jwk::deserialize(json).ok()?;
        let mut algorithms = algorithms_of(&jwk.algorithm)?;
        if let Some(only) = json.get("alg") {
            let only: Algorithm = only.as_str()?.parse().ok()?;
            algorithms.retain(|algorithm| *algorithm == only);
        }
        Some(Self {
            key: DecodingKey::from_jwk(&jwk).ok()?,
            id: jwk.common.key_id,
            algorithms,
        })
    }

    fn new(key: DecodingKey) -> Self {
        Self {
            id: None,
            algorithms: key.family().algorithms().to_vec(),
            key,
        }
    }

    /// Whether a token with this header can be verified by this key.
    pub(super) fn suits(&self, header: &Header) -> bool {
        let is_meant = match (&self.id, &header.kid) {
            (Some(id), Some(meant)) => id == meant,
            _ => true,
        };
        is_meant && self.algorithms.contains(&header.alg)
    }

    /// Whether it is the one with this identifier.
    pub(super) fn has_id(&self, id: &str) -> bool {
        self.id.as_deref() == Some(id)
    }

    pub(super) fn decoding_key(&self) -> &DecodingKey {
        &self.key
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?}, {:?})", self.id, self.algorithms)
    }
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// `None`: not an asymmetric key that is known.
fn algorithms_of(parameters: &AlgorithmParameters) -> Option<Vec<Algorithm>> {
    match parameters {
        AlgorithmParameters::RSA(_) => Some(AlgorithmFamily::Rsa.algorithms().to_vec()),
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => Some(vec![Algorithm::ES256]),
            EllipticCurve::P384 => Some(vec![Algorithm::ES384]),
            _ => None,
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Some(vec![Algorithm::EdDSA])
        }
        _ => None,
    }
}
