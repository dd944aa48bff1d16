//! A client is who its verified certificate says.

use std::future;

use authentication_api::{Credentials, Denial, Identity};

use crate::authenticator::{Asked, Authenticator, Opinion};

/// Allows clients with a certificate; the listener has verified it.
#[derive(Debug)]
pub(crate) struct TlsIdentity {
    name: String,
}

impl TlsIdentity {
    pub(crate) fn new(name: String) -> Self {
        Self { name }
    }
}

impl Authenticator for TlsIdentity {
    fn name(&self) -> &str {
        &self.name
    }

    fn authenticate<'a>(&'a self, credentials: &'a Credentials) -> Asked<'a> {
        Box::pin(future::ready(opinion(credentials)))
    }
}

/// A user name in CONNECT must be that of the certificate: otherwise logs and rules of the two would mix.
fn opinion(credentials: &Credentials) -> Opinion {
    let Some(certified) = &credentials.certificate_name else {
        return Opinion::Ignore;
    };
    match &credentials.username {
        Some(said) if said != certified => Opinion::Deny(Denial::OtherUser),
        _ => Opinion::Allow(Box::new(Identity {
            username: Some(certified.clone()),
            ..Identity::default()
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(username: Option<&str>, certificate_name: Option<&str>) -> Credentials {
        Credentials {
            client_id: "c".into(),
            username: username.map(Into::into),
            password: None,
            address: None,
            certificate_name: certificate_name.map(Into::into),
        }
    }

    #[test]
    fn a_certificate_names_the_user() {
        for username in [None, Some("alice")] {
            let opinion = opinion(&credentials(username, Some("alice")));
            let Opinion::Allow(identity) = opinion else {
                panic!("{opinion:?}");
            };
            assert_eq!(identity.username.as_deref(), Some("alice"));
            assert!(!identity.is_superuser);
        }
    }

    #[test]
    fn another_user_name_is_denied() {
        let opinion = opinion(&credentials(Some("bob"), Some("alice")));
        assert!(
            matches!(opinion, Opinion::Deny(Denial::OtherUser)),
            "{opinion:?}"
        );
    }

    #[test]
    fn without_a_certificate_the_next_is_asked() {
        let opinion = opinion(&credentials(Some("alice"), None));
        assert!(matches!(opinion, Opinion::Ignore), "{opinion:?}");
    }
}
