//! What a reload has read again and what it could not, file by file, for the log.

use std::path::{Path, PathBuf};

use config::{AuthenticationConfig, Config, ListenerView, SslConfig, TelemetryConfig};

/// The files that a reload was to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reread {
    /// They were read, and count from now on.
    pub read: usize,
    /// They, or others that belong to them, cannot be used: what was read before stays.
    pub failed: usize,
}

impl Reread {
    /// Says that these files are read, or that they stay as they were.
    pub(crate) fn tell(&mut self, what: &'static str, files: Vec<PathBuf>, good: bool) {
        for file in files {
            if good {
                self.read += 1;
                tracing::info!(what, file = %file.display(), "read again");
            } else {
                self.failed += 1;
                tracing::warn!(what, file = %file.display(), "not read again: the previous content stays in use");
            }
        }
    }
}

/// The file of rules.
pub(crate) fn rules(config: &Config) -> Vec<PathBuf> {
    config.authorization.file.iter().cloned().collect()
}

/// The files of the token and of the keys of the HTTP port.
pub(crate) fn http_keys(config: &Config) -> Vec<PathBuf> {
    let files = [&config.http.token_file, &config.http.key_file];
    files.into_iter().flatten().cloned().collect()
}

/// The files of the exporter for OpenTelemetry.
pub(crate) fn telemetry(config: &TelemetryConfig) -> Vec<PathBuf> {
    let files = [&config.otlp.headers_file, &config.otlp.ca_file];
    files.into_iter().flatten().cloned().collect()
}

/// The files of a listener's TLS.
pub(crate) fn certificates(view: &ListenerView<'_>) -> Vec<PathBuf> {
    view.ssl.map(tls_files).unwrap_or_default()
}

/// The files of TLS settings.
pub(crate) fn tls_files(ssl: &SslConfig) -> Vec<PathBuf> {
    let files = [
        &ssl.cert_file,
        &ssl.key_file,
        &ssl.trust_certs_file,
        &ssl.crl_file,
    ];
    files.into_iter().flatten().cloned().collect()
}

/// The files of all authenticators.
pub(crate) fn authenticators(config: &AuthenticationConfig) -> Vec<PathBuf> {
    let files = config.chain.iter().flat_map(|member| {
        [
            &member.file,
            &member.jwt.secret_file,
            &member.jwt.public_key_file,
            &member.jwt.jwks_file,
            &member.http.token_file,
            &member.http.ca_file,
            &member.postgres.password_file,
            &member.postgres.ca_file,
        ]
    });
    files
        .filter_map(|file| file.as_deref().map(Path::to_owned))
        .collect()
}
