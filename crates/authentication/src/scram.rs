//! SCRAM (RFC 5802, RFC 7677) by the enhanced authentication of MQTT 5.0 (§4.12), without channel binding.
//!
//! Purpose: [`ScramUsers`] begins an [`Exchange`], which takes the client's data and gives the server's.
//!
//! Invariants: sans-IO but for the server's nonce. What a client sees of a user that does not exist cannot
//! be told from one that does: salt and iterations are made up, always the same for the same name, and the
//! proof is computed and compared.

use std::{path::Path, str};

use aws_lc_rs::{constant_time, error::Unspecified, rand};
use base64::{Engine, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use authentication_api::{Denial, Identity, Source, Step};

use crate::{
    scram_keys::{Mechanism, ScramKeys},
    users::Users,
};

/// The longest authentication data that is looked at.
const MAX_DATA_BYTES: usize = 2_048;

/// Length of the server's nonce before it is encoded.
const NONCE_BYTES: usize = 18;

/// The users of one file that can authenticate by SCRAM.
#[derive(Debug)]
pub(crate) struct ScramUsers {
    users: Users,
    /// For names that are not in the file, by mechanism.
    models: Vec<ScramKeys>,
}

impl ScramUsers {
    pub(crate) fn open(file: Option<&Path>) -> Result<Self, String> {
        Self::new(Users::read(file)?)
            .map_err(|_| "the operating system gives no random numbers".to_owned())
    }

    #[cfg(feature = "fuzzing")]
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        Self::new(Users::parse(text).ok()?).ok()
    }

    fn new(users: Users) -> Result<Self, Unspecified> {
        let models = Mechanism::ALL
            .into_iter()
            .map(|mechanism| match users.first_scram_keys(mechanism) {
                Some(keys) => Ok(keys.clone()),
                None => ScramKeys::new(mechanism, &random::<NONCE_BYTES>()?),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { users, models })
    }

    /// Whether a user stands in the file.
    pub(crate) fn has_user(&self, username: &str) -> bool {
        self.users.has(username)
    }

    /// Keys that no password fits, derived from those of a user who exists: so they are the same after a
    /// restart, and cost the client as much.
    fn made_up(&self, name: &str, mechanism: Mechanism) -> Option<ScramKeys> {
        let model = self.models.iter().find(|it| it.mechanism == mechanism)?;
        let derive = |purpose: &str| {
            let seed = format!("{purpose}:{name}");
            let derived = mechanism.sign(&model.server_key, seed.as_bytes());
            derived.as_ref().to_vec()
        };
        let mut salt = derive("salt");
        salt.truncate(model.salt.len());
        Some(ScramKeys {
            mechanism,
            iterations: model.iterations,
            salt,
            stored_key: Zeroizing::new(derive("stored key")),
            server_key: Zeroizing::new(derive("server key")),
        })
    }
}

/// Begins with the client's first message. The first of the files that knows the user counts.
/// `None`: no file, or not a mechanism of SCRAM.
pub(crate) fn begin(files: &[ScramUsers], method: &str, data: &[u8]) -> Option<Step> {
    let mechanism = Mechanism::of_method(method)?;
    let first_file = files.first()?;
    let Some(client_first) = ClientFirst::parse(data) else {
        return Some(Step::Denied(Denial::Denied));
    };
    let name = &client_first.name;
    let known = files
        .iter()
        .find_map(|file| file.users.scram_keys(name, mechanism).cloned());
    let failure = match known {
        Some(_) => Denial::WrongPassword,
        None => Denial::UnknownUser,
    };
    let keys = known.or_else(|| first_file.made_up(name, mechanism))?;
    Some(match random::<NONCE_BYTES>() {
        Ok(nonce) => Exchange::begin(client_first, (keys, failure), &STANDARD.encode(nonce)),
        Err(Unspecified) => Step::Denied(Denial::Unavailable),
    })
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], Unspecified> {
    let mut bytes = [0; BYTES];
    rand::fill(&mut bytes)?;
    Ok(bytes)
}

/// An enhanced authentication under way.
#[derive(Debug)]
pub(crate) struct Exchange {
    name: Box<str>,
    keys: ScramKeys,
    /// What it is if the proof is wrong.
    failure: Denial,
    /// How the client's last message must begin: its header and both nonces.
    channel_and_nonce: String,
    /// The messages up to here, as they are signed.
    messages: String,
}

impl Exchange {
    fn begin(
        client: ClientFirst<'_>,
        (keys, failure): (ScramKeys, Denial),
        server_nonce: &str,
    ) -> Step {
        let nonce = format!("{}{server_nonce}", client.nonce);
        let server_first = format!(
            "r={nonce},s={},i={}",
            STANDARD.encode(&keys.salt),
            keys.iterations
        );
        let exchange = Self {
            name: client.name.into(),
            keys,
            failure,
            channel_and_nonce: format!("c={},r={nonce}", STANDARD.encode(client.header)),
            messages: format!("{},{server_first}", client.bare),
        };
        Step::Challenge(server_first.into_bytes(), Box::new(exchange))
    }

    /// `None`: the message is malformed, or the proof is wrong.
    fn server_final(&self, data: &[u8]) -> Option<String> {
        let (without_proof, proof) = text(data)?.rsplit_once(",p=")?;
        let extensions = without_proof.strip_prefix(&self.channel_and_nonce)?;
        if !extensions.is_empty() && !extensions.starts_with(',') {
            return None;
        }
        let messages = format!("{},{without_proof}", self.messages);
        self.check(&STANDARD.decode(proof).ok()?, messages.as_bytes())?;
        let signature = self
            .keys
            .mechanism
            .sign(&self.keys.server_key, messages.as_bytes());
        Some(format!("v={}", STANDARD.encode(signature)))
    }

    /// RFC 5802 §3: ClientKey is ClientProof XOR HMAC(StoredKey, AuthMessage); its hash is StoredKey.
    fn check(&self, proof: &[u8], messages: &[u8]) -> Option<()> {
        let keys = &self.keys;
        let signature = keys.mechanism.sign(&keys.stored_key, messages);
        if proof.len() != signature.as_ref().len() {
            return None;
        }
        let client_key: Zeroizing<Vec<u8>> = proof
            .iter()
            .zip(signature.as_ref())
            .map(|(proof, signature)| proof ^ signature)
            .collect::<Vec<u8>>()
            .into();
        let hash = keys.mechanism.hash(&client_key);
        constant_time::verify_slices_are_equal(hash.as_ref(), &keys.stored_key).ok()
    }
}

impl authentication_api::Exchange for Exchange {
    fn username(&self) -> &str {
        &self.name
    }

    fn answer(self: Box<Self>, data: &[u8]) -> Step {
        match self.server_final(data) {
            Some(server_final) => Step::Done(
                Box::new(Identity {
                    username: Some(self.name),
                    source: Source::ScramFile,
                    ..Identity::default()
                }),
                server_final.into_bytes(),
            ),
            None => Step::Denied(self.failure),
        }
    }
}

/// The client's first message.
struct ClientFirst<'a> {
    /// Whether it can bind to a channel, and as whom it wants to act.
    header: &'a str,
    /// What follows.
    bare: &'a str,
    name: String,
    nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    /// `None`: malformed, or it asks for what is absent here: channel binding, an extension that must be
    /// understood, acting as somebody else.
    fn parse(data: &'a [u8]) -> Option<Self> {
        let message = text(data)?;
        let (binding, rest) = message.split_once(',')?;
        let (acts_as, bare) = rest.split_once(',')?;
        let mut attributes = bare.split(',');
        let name = unescaped(attributes.next()?.strip_prefix("n=")?)?;
        let nonce = attributes.next()?.strip_prefix("r=")?;
        let acts_as_itself = acts_as.is_empty() || unescaped(acts_as.strip_prefix("a=")?)? == name;
        let is_good = matches!(binding, "n" | "y")
            && acts_as_itself
            && !name.is_empty()
            && !nonce.is_empty()
            && nonce.bytes().all(|byte| byte.is_ascii_graphic());
        is_good.then_some(Self {
            header: &message[..message.len() - bare.len()],
            bare,
            name,
            nonce,
        })
    }
}

fn text(data: &[u8]) -> Option<&str> {
    (data.len() <= MAX_DATA_BYTES).then_some(())?;
    str::from_utf8(data).ok()
}

/// A name in which `=2C` stands for a comma and `=3D` for an equals sign.
fn unescaped(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut unescaped = parts.next()?.to_owned();
    for part in parts {
        let (escaped, rest) = part.split_at_checked(2)?;
        unescaped.push(match escaped {
            "2C" => ',',
            "3D" => '=',
            _ => return None,
        });
        unescaped.push_str(rest);
    }
    Some(unescaped)
}

#[cfg(test)]
mod tests;
