//! User names from client certificates.
//!
//! Deliberately absent: whether a certificate is valid. TLS has verified it.

use std::net::IpAddr;

use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// What a template names; no name begins another.
const FIELDS: [(&str, Field); 5] = [
    ("cn", Field::CommonName),
    ("dns", Field::Dns),
    ("email", Field::Email),
    ("uri", Field::Uri),
    ("serial", Field::Serial),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    CommonName,
    Dns,
    Email,
    Uri,
    Serial,
}

/// How a certificate becomes a user name.
#[derive(Clone, Copy, Debug)]
pub struct Identity;

impl Identity {
    /// `template` with `%cn`, `%dns`, `%email`, `%uri` and `%serial` replaced by the first such name of the
    /// certificate (DER): the subject's common name, the subject's alternative names, the serial number in
    /// hexadecimal digits.
    ///
    /// `None`: the certificate has no such name, or one that is empty or holds control characters; or the
    /// template names something else.
    #[must_use]
    pub fn from_certificate(der: &[u8], template: &str) -> Option<String> {
        let certificate = Certificate::from_der(der).ok()?;
        expand(template, |name| name_of(&certificate, name))
    }

    /// Whether `template` names only what a certificate can have.
    #[must_use]
    pub fn is_template(template: &str) -> bool {
        expand(template, |_| Some("name".to_owned())).is_some()
    }
}

fn expand(template: &str, name_of: impl Fn(Field) -> Option<String>) -> Option<String> {
    let mut parts = template.split('%');
    let mut identity = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, literal) = FIELDS
            .iter()
            .find_map(|(text, name)| Some((*name, part.strip_prefix(text)?)))?;
        identity += &name_of(name).filter(|value| is_plain(value))?;
        identity += literal;
    }
    Some(identity)
}

fn is_plain(value: &str) -> bool {
    !value.is_empty() && !value.contains(char::is_control)
}

fn name_of(certificate: &Certificate, name: Field) -> Option<String> {
    let certificate = certificate.tbs_certificate();
    match name {
        Field::CommonName => {
            let name = certificate.subject().common_name().ok()??;
            Some(name.value().into_owned())
        }
        Field::Serial => Some(hexadecimal(certificate.serial_number().as_bytes())),
        Field::Dns | Field::Email | Field::Uri => {
            let (_, names) = certificate.get_extension::<SubjectAltName>().ok()??;
            names.0.iter().find_map(|other| alternative(other, name))
        }
    }
}

/// The names and addresses of servers among the alternative names of a certificate.
pub(crate) fn server_names(certificate: &Certificate) -> Vec<String> {
    let content = certificate.tbs_certificate();
    let all = content.get_extension::<SubjectAltName>();
    let all = all.ok().flatten().map_or_else(Vec::new, |(_, all)| all.0);
    let names = all.iter().filter_map(|name| alternative(name, Field::Dns));
    let addresses = all.iter().filter_map(|name| match name {
        GeneralName::IpAddress(octets) => match *octets.as_bytes() {
            [a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
            ref octets => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
        },
        _ => None,
    });
    names.chain(addresses.map(|ip| ip.to_string())).collect()
}

fn alternative(name: &GeneralName, wanted: Field) -> Option<String> {
    match (wanted, name) {
        (Field::Dns, GeneralName::DnsName(text))
        | (Field::Email, GeneralName::Rfc822Name(text))
        | (Field::Uri, GeneralName::UniformResourceIdentifier(text)) => Some(text.to_string()),
        _ => None,
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType, SerialNumber};

    fn certificate(common_name: &str, alternatives: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name.remove(DnType::CommonName);
        if !common_name.is_empty() {
            let name = &mut params.distinguished_name;
            name.push(DnType::CommonName, common_name);
        }
        params.subject_alt_names = alternatives;
        params.serial_number = Some(SerialNumber::from_slice(&[0x0A, 0xBC]));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        certificate.der().to_vec()
    }

    fn full() -> Vec<u8> {
        let text = |text: &str| text.try_into().expect("ASCII");
        certificate(
            "device-7",
            vec![
                SanType::IpAddress([192, 0, 2, 7].into()),
                SanType::URI(text("urn:device:7")),
                SanType::DnsName(text("seven.example")),
                SanType::DnsName(text("other.example")),
                SanType::Rfc822Name(text("seven@example")),
            ],
        )
    }

    #[test]
    fn templates_are_filled_in() {
        let der = full();
        for (template, identity) in [
            ("%cn", "device-7"),
            ("%dns", "seven.example"),
            ("%email", "seven@example"),
            ("%uri", "urn:device:7"),
            ("%serial", "0abc"),
            ("plant/%cn/%serial!", "plant/device-7/0abc!"),
            ("%cn%cn", "device-7device-7"),
        ] {
            let made = Identity::from_certificate(&der, template);
            assert_eq!(made.as_deref(), Some(identity));
        }
    }

    #[test]
    fn what_a_certificate_lacks_makes_no_identity() {
        let der = certificate("", Vec::new());
        for template in ["%cn", "%dns", "%email", "%uri", "x%cn"] {
            assert_eq!(Identity::from_certificate(&der, template), None);
        }
        assert!(Identity::from_certificate(&der, "%serial").is_some());
    }

    #[test]
    fn control_characters_make_no_identity() {
        for name in ["a\0b", "a\nb", "a\u{7f}", "a\u{85}"] {
            let der = certificate(name, Vec::new());
            assert_eq!(Identity::from_certificate(&der, "%cn"), None, "{name:?}");
        }
        let der = certificate("\u{e4}rger %dns", Vec::new());
        let made = Identity::from_certificate(&der, "%cn");
        assert_eq!(made.as_deref(), Some("\u{e4}rger %dns"));
    }

    #[test]
    fn templates_are_checked() {
        for template in ["%cn", "a%dns-%email", "%uri", "%serial", "fixed"] {
            assert!(Identity::is_template(template), "{template}");
        }
        for template in ["%", "%%", "%CN", "%ou", "100%"] {
            assert!(!Identity::is_template(template), "{template}");
            assert_eq!(Identity::from_certificate(&full(), template), None);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_certificates_never_panic(
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut der = full();
            let at = at.index(der.len());
            der[at] = byte;
            let cut = cut.index(der.len());
            for bytes in [&der[..], &der[..cut]] {
                let _ = Identity::from_certificate(bytes, "%cn%dns%email%uri%serial");
            }
        }
    }
}
