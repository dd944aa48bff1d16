//! TLS towards other servers. Their certificates are always verified.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

/// TLS that trusts these authorities.
pub fn tls_client(authorities: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3")
        .with_root_certificates(authorities)
        .with_no_client_auth()
}

/// The authorities of `ca_file`, or those of the system.
///
/// # Errors
/// A file that cannot be read or holds no certificate; a system that has none.
pub fn authorities(ca_file: Option<&Path>) -> Result<RootCertStore, String> {
    match ca_file {
        Some(file) => authorities_of_file(file),
        None => authorities_of_system(),
    }
}

fn authorities_of_file(file: &Path) -> Result<RootCertStore, String> {
    let bad = |reason: String| format!("caFile {}: {reason}", file.display());
    let mut authorities = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(file).map_err(|error| bad(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        authorities
            .add(certificate)
            .map_err(|error| bad(error.to_string()))?;
    }
    if authorities.is_empty() {
        return Err(bad("holds no certificate".to_owned()));
    }
    Ok(authorities)
}

fn authorities_of_system() -> Result<RootCertStore, String> {
    let mut authorities = RootCertStore::empty();
    // Single certificates that no one can use are usual among those of a system.
    authorities.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if authorities.is_empty() {
        return Err(
            "caFile is missing, and the system has no certificates of authorities".to_owned(),
        );
    }
    Ok(authorities)
}
