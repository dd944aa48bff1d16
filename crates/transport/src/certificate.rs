//! What people ask of a certificate: whose it is, and how long it lasts.

use std::time::Duration;

use x509_cert::Certificate;
use x509_cert::certificate::Rfc5280;
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode;

use crate::identity::server_names;

/// What a certificate says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFacts {
    /// Its subject, as RFC 4514 writes it; empty: it has none.
    pub subject: String,
    /// Who has signed it.
    pub issuer: String,
    /// The names of servers that it is for.
    pub names: Vec<String>,
    /// From when on it is valid, since the Unix epoch.
    pub not_before: Duration,
    /// Until when.
    pub not_after: Duration,
    /// When the first of the revocation lists that the listener reads beside it should have been replaced
    /// (`nextUpdate`), since the Unix epoch; `None`: there is none, or none that says so.
    pub next_update: Option<Duration>,
}

impl CertificateFacts {
    /// `None`: it cannot be read (DER).
    #[must_use]
    pub fn of(der: &[u8]) -> Option<Self> {
        let certificate = Certificate::from_der(der).ok()?;
        let content = certificate.tbs_certificate();
        let validity = content.validity();
        Some(Self {
            subject: content.subject().to_string(),
            issuer: content.issuer().to_string(),
            names: server_names(&certificate),
            not_before: validity.not_before.to_unix_duration(),
            not_after: validity.not_after.to_unix_duration(),
            next_update: None,
        })
    }
}

/// When a revocation list should have been replaced, since the Unix epoch; `None`: it does not say, or cannot be
/// read (DER).
pub(crate) fn next_update(der: &[u8]) -> Option<Duration> {
    let list = CertificateList::<Rfc5280>::from_der(der).ok()?;
    Some(list.tbs_cert_list.next_update?.to_unix_duration())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType, date_time_ymd};

    #[test]
    fn a_certificate_says_whose_it_is_and_how_long() {
        let mut params = CertificateParams::default();
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, "mq, 1");
        params.subject_alt_names = vec![
            SanType::IpAddress([192, 0, 2, 7].into()),
            SanType::DnsName("mq-1.example".try_into().expect("ASCII")),
        ];
        params.not_before = date_time_ymd(2001, 9, 9);
        params.not_after = date_time_ymd(2033, 5, 18);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let facts = CertificateFacts::of(certificate.der()).expect("a certificate");
        assert_eq!(facts.subject, "CN=mq\\, 1");
        assert_eq!(facts.issuer, facts.subject);
        assert_eq!(facts.names, ["mq-1.example", "192.0.2.7"]);
        assert_eq!(facts.not_before.as_secs(), 999_993_600);
        assert_eq!(facts.not_after.as_secs(), 1_999_987_200);
        assert_eq!(CertificateFacts::of(b"no DER"), None);
    }
}
