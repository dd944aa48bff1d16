//! Which class of a configuration a client is of, for people.

use broker_core::classes::Candidate;
use config::Config;
use net_api::Kind;

use crate::settings::client_class;

/// A class that was tried for a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TriedClass {
    /// Its name.
    pub name: String,
    /// The option of `match` that does not match; `None`: the client is of the class.
    pub mismatch: Option<&'static str>,
    /// The limits that it has of its own: options and values.
    pub limits: Vec<(String, String)>,
}

/// Tries the classes in their order until one matches. `listener`: the kind of the listener by its name.
#[must_use]
pub fn try_classes(
    config: &Config,
    client_id: &str,
    user: Option<&str>,
    certificate: Option<&str>,
    listener: &str,
) -> Vec<TriedClass> {
    let candidate = Candidate {
        user,
        client_id,
        certificate,
        listener: Kind::ALL.into_iter().find(|kind| kind.name() == listener),
    };
    let mut tried = Vec::new();
    for class in &config.client_classes {
        let mismatch = client_class(config, class).matching.mismatch(&candidate);
        tried.push(TriedClass {
            name: class.name.clone().unwrap_or_default(),
            mismatch,
            limits: class.own_limits(),
        });
        if mismatch.is_none() {
            break;
        }
    }
    tried
}
