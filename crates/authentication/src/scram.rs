//! SCRAM (RFC 5802, RFC 7677) by the enhanced authentication of MQTT 5.0 (§4.12), without channel binding.
//!
//! Purpose: [`ScramUsers`] begins an [`Exchange`], which takes the client's data and gives the server's.
//!
//! Invariants: sans-IO but for the server's nonce. What a client sees of a user that does not exist cannot
//! be told from one that does: salt and iterations are made up, always the same for the same name, and the
//! proof is computed and compared.

use std::{path::Path, str, sync::Arc};

use aws_lc_rs::{constant_time, error::Unspecified, rand};
use base64::{Engine, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use authentication_api::{Denial, Identity, Source, Step};
use control::Revision;

use crate::{
    control_users::{ControlUsers, Found},
    scram_keys::{Mechanism, ScramKeys},
    users::Users,
};

/// The longest authentication data that is looked at.
///
/// Limit: data of SCRAM | {} | denied
const MAX_DATA_BYTES: usize = 2_048;

/// Length of the server's nonce before it is encoded.
const NONCE_BYTES: usize = 18;

/// Where users are looked up.
#[derive(Debug)]
pub(crate) enum ScramSource {
    /// In a file.
    File(ScramUsers),
    /// In the control store.
    Control(Arc<ControlUsers>),
}

impl ScramSource {
    /// Whether a user stands in the file.
    pub(crate) fn has_user(&self, username: &str) -> bool {
        match self {
            Self::File(file) => file.users.has(username),
            Self::Control(_) => false,
        }
    }

    /// Keys that no password fits, for a name that is nowhere.
    fn made_up(&self, name: &str, mechanism: Mechanism) -> Option<ScramKeys> {
        match self {
            Self::File(file) => file.made_up(name, mechanism),
            Self::Control(users) => Some(users.made_up_keys(name, mechanism)),
        }
    }
}

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

    /// Keys that no password fits, derived from those of a user who exists: so they are the same after a
    /// restart, and cost the client as much.
    fn made_up(&self, name: &str, mechanism: Mechanism) -> Option<ScramKeys> {
        let model = self.models.iter().find(|it| it.mechanism == mechanism)?;
        Some(model.made_up(name))
    }
}

impl ScramKeys {
    /// Keys that no password fits, which look like these; the same for the same name.
    pub(crate) fn made_up(&self, name: &str) -> Self {
        let (model, mechanism) = (self, self.mechanism);
        let derive = |purpose: &str| {
            let seed = format!("{purpose}:{name}");
            let derived = mechanism.sign(&model.server_key, seed.as_bytes());
            derived.as_ref().to_vec()
        };
        let mut salt = derive("salt");
        salt.truncate(model.salt.len());
        Self {
            mechanism,
            iterations: model.iterations,
            salt,
            stored_key: Zeroizing::new(derive("stored key")),
            server_key: Zeroizing::new(derive("server key")),
        }
    }
}

/// What has the keys of an exchange.
#[derive(Debug)]
enum Origin {
    /// A file.
    File,
    /// The control store, where the user is looked up again at the end.
    Control {
        users: Arc<ControlUsers>,
        revision: Revision,
        client_id: Box<str>,
    },
    /// Nothing: the name is unknown.
    Nobody,
}

/// Begins with the first message of a client with this identifier. The first of the sources that knows the user counts.
/// `None`: no source, or not a mechanism of SCRAM.
pub(crate) fn begin(
    sources: &[ScramSource],
    client_id: &str,
    method: &str,
    data: &[u8],
) -> Option<Step> {
    let mechanism = Mechanism::of_method(method)?;
    let first = sources.first()?;
    let Some(client_first) = ClientFirst::parse(data) else {
        return Some(Step::Denied(Denial::Denied));
    };
    let name = &client_first.name;
    let (keys, origin) = match known(sources, client_id, name, mechanism) {
        Ok(Some(known)) => known,
        Ok(None) => (first.made_up(name, mechanism)?, Origin::Nobody),
        Err(denial) => return Some(Step::Denied(denial)),
    };
    Some(match random::<NONCE_BYTES>() {
        Ok(nonce) => Exchange::begin(client_first, (keys, origin), &STANDARD.encode(nonce)),
        Err(Unspecified) => Step::Denied(Denial::Unavailable),
    })
}

/// The keys of a user in the first source that has some; `None`: none has.
fn known(
    sources: &[ScramSource],
    client_id: &str,
    name: &str,
    mechanism: Mechanism,
) -> Result<Option<(ScramKeys, Origin)>, Denial> {
    for source in sources {
        match source {
            ScramSource::File(file) => {
                if let Some(keys) = file.users.scram_keys(name, mechanism) {
                    return Ok(Some((keys.clone(), Origin::File)));
                }
            }
            ScramSource::Control(users) => {
                if let Some(Found { keys, revision }) = users.scram_keys(name, mechanism)? {
                    let origin = Origin::Control {
                        users: Arc::clone(users),
                        revision,
                        client_id: client_id.into(),
                    };
                    return Ok(Some((keys, origin)));
                }
            }
        }
    }
    Ok(None)
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
    origin: Origin,
    /// How the client's last message must begin: its header and both nonces.
    channel_and_nonce: String,
    /// The messages up to here, as they are signed.
    messages: String,
}

impl Exchange {
    fn begin(
        client: ClientFirst<'_>,
        (keys, origin): (ScramKeys, Origin),
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
            origin,
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
        let Some(server_final) = self.server_final(data) else {
            return Step::Denied(match self.origin {
                Origin::Nobody => Denial::UnknownUser,
                Origin::File | Origin::Control { .. } => Denial::WrongPassword,
            });
        };
        let identity = match &self.origin {
            Origin::File => Ok(Box::new(Identity {
                username: Some(self.name),
                source: Source::ScramFile,
                ..Identity::default()
            })),
            Origin::Control {
                users,
                revision,
                client_id,
            } => users.proven(&self.name, *revision, client_id),
            // No proof fits made-up keys.
            Origin::Nobody => Err(Denial::UnknownUser),
        };
        match identity {
            Ok(identity) => Step::Done(identity, server_final.into_bytes()),
            Err(denial) => Step::Denied(denial),
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
