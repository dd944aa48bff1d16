//! `heraldmq control export`: all users, groups, rules, people and keys of a running broker as one document.

use std::io;

use crate::failure::Failure;
use crate::http_port::HttpPort;

/// The path of the document.
pub(super) const EXPORT: &str = "/api/v1/control/export";

/// Print all users, groups and rules as one document of YAML; for an administrator, all people and keys too.
///
/// Without --with-secrets the document has no hashes, and can only change users, people and keys that are there. A document with secrets is a backup: keep it as
/// a password file.
#[derive(clap::Args)]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    node: HttpPort,
    /// With the hashes of passwords and secrets, which needs the role administrator.
    #[arg(long)]
    with_secrets: bool,
}

pub(super) fn export(arguments: &ExportArguments) -> Result<(), Failure> {
    let query = [("with_secrets", arguments.with_secrets.to_string())];
    print_stream(&arguments.node, EXPORT, &query)
}

/// Prints an answer as it comes.
pub(super) fn print_stream(
    node: &HttpPort,
    path: &str,
    query: &[(&str, String)],
) -> Result<(), Failure> {
    let mut document = node.stream(path, query, None)?;
    match io::copy(&mut document, &mut io::stdout().lock()) {
        // Whoever reads it has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::Runtime(format!(
            "the document is not complete: {error}"
        ))),
        Ok(_) => Ok(()),
    }
}
