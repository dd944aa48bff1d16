//! Which class of a configuration a client is of, for people.

use broker_core::classes::Candidate;
use config::{ClientClassConfig, Config, DEFAULT_CLASS};
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

/// A client as people describe it.
#[derive(Clone, Copy, Debug)]
pub struct DescribedClient<'a> {
    /// Client identifier.
    pub client_id: &'a str,
    /// The user that authentication has confirmed.
    pub user: Option<&'a str>,
    /// The class that its login names.
    pub login_class: Option<&'a str>,
    /// The name in its certificate.
    pub certificate: Option<&'a str>,
    /// The kind of the listener by its name.
    pub listener: &'a str,
}

/// Tries the classes in their order until one matches; only the one that the login names, if there is such a class.
#[must_use]
pub fn try_classes(config: &Config, client: &DescribedClient<'_>) -> Vec<TriedClass> {
    let mut kinds = Kind::ALL.into_iter();
    let candidate = Candidate {
        user: client.user,
        client_id: client.client_id,
        certificate: client.certificate,
        listener: kinds.find(|kind| kind.name() == client.listener),
    };
    let of = |class: &ClientClassConfig, mismatch| TriedClass {
        name: class.name.clone().unwrap_or_default(),
        mismatch,
        limits: class.own_limits(),
    };
    if let Some(name) = client.login_class {
        let mut classes = config.client_classes.iter();
        let named = classes.find(|class| class.name.as_deref() == Some(name));
        if named.is_some() || name == DEFAULT_CLASS {
            return named.map(|class| of(class, None)).into_iter().collect();
        }
    }
    let mut tried = Vec::new();
    for class in &config.client_classes {
        let mismatch = client_class(config, class).matching.mismatch(&candidate);
        tried.push(of(class, mismatch));
        if mismatch.is_none() {
            break;
        }
    }
    tried
}
