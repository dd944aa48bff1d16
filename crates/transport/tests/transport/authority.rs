//! An authority whose certificates last for one test or benchmark.

use std::fs;
use std::path::PathBuf;

use herald_transport::{ClientAuth, ClientTls, MinimumVersion, ServerTls};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use tempfile::TempDir;

/// The name that servers have.
pub(crate) const SERVER: &str = "broker.example";

/// Signs certificates and keeps their files.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        let key = KeyPair::generate().expect("a key");
        let authority = Self {
            folder: TempDir::new().expect("a folder"),
            issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate"),
        };
        authority.write("authority.pem", &authority.issuer.pem());
        authority
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("writes a file");
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Files of a new certificate and its key.
    pub(crate) fn certificate(&self, name: &str, serial: u8) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from_slice(&[serial]));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signs");
        (
            self.write(&format!("{name}-{serial}.pem"), &certificate.pem()),
            self.write(&format!("{name}-{serial}.key"), &key.serialize_pem()),
        )
    }

    /// The file of a new revocation list.
    pub(crate) fn revoke(&self, serials: &[u8]) -> PathBuf {
        let revoked = |serial: &u8| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&[*serial]),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from_slice(&[1]),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).expect("signs");
        self.write("revoked.pem", &list.pem().expect("PEM"))
    }

    /// A server with a new certificate.
    pub(crate) fn server(&self, client_auth: ClientAuth) -> ServerTls {
        let (certificate, key) = self.certificate(SERVER, 1);
        ServerTls {
            certificate,
            key,
            client_auth,
            authorities: Some(self.path("authority.pem")),
            revocation_lists: None,
            minimum_version: MinimumVersion::V1_2,
            websocket: false,
        }
    }

    /// A client that trusts this authority and keeps its tickets.
    pub(crate) fn client(&self) -> ClientTls {
        ClientTls {
            authorities: Some(self.path("authority.pem")),
            resumes: true,
            ..ClientTls::default()
        }
    }
}
