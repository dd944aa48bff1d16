//! `heraldmq secrets`: what the configuration of a new cluster names and nobody should choose by hand, for places without a shell,
//! such as an image.
//!
//! Invariants: what is there stays, so a second run changes nothing; only the owner reads what is made; no secret is printed.
//!
//! Deliberately absent: keys with roles (`api_key`), further users (`passwd`), certificates.

mod kubernetes;

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use authentication::{Storage, with_user, without_user};
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

use crate::{failure::Failure, passwd};

/// Of the file of users.
const PASSWORDS: &str = "passwords";

/// Create a cluster secret, a token of the HTTP API and a user, in a folder or a Secret of Kubernetes.
///
/// In a folder, creates `cluster-secret` (clusterConfig.secretFile), `token` (http.tokenFile), `USER.password`, and `passwords` with
/// this user (the file of an authenticator `passwordFile`). Existing files stay unchanged.
///
/// In Kubernetes, creates a Secret with the keys `cluster-secret` and `token`, without a user. An existing Secret stays unchanged.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The folder; created if it is missing.
    #[arg(value_name = "DIR", required_unless_present = "kubernetes")]
    folder: Option<PathBuf>,

    /// The user to create, with a random password.
    #[arg(long, value_name = "NAME", value_parser = user, required_unless_present = "kubernetes")]
    user: Option<String>,

    /// Create a Secret of this name, in a pod whose service account may create Secrets in its namespace.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["folder", "user"])]
    kubernetes: Option<String>,

    /// The folder of the pod's service account.
    #[arg(long, value_name = "DIR", default_value = kubernetes::ACCOUNT, hide = true)]
    service_account: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq secrets /etc/heraldmq --user demo
  heraldmq secrets --kubernetes heraldmq-secret

Exit codes: 0 all is there; 1 a file cannot be used, or Kubernetes refuses; 2 wrong command line.";

/// A user whose name is part of a file's name.
fn user(name: &str) -> Result<String, String> {
    match name.starts_with('.') || name.contains('/') {
        true => Err("a file cannot have this name".to_owned()),
        false => Ok(name.to_owned()),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (folder, user) = match arguments {
        Arguments {
            folder: Some(folder),
            user: Some(user),
            ..
        } => (folder, user),
        Arguments {
            kubernetes: Some(name),
            service_account,
            ..
        } => {
            let is_made = kubernetes::make(name, service_account)?;
            return print(&format!("{} {name}\n", told_of(is_made)));
        }
        // clap has asked for one of them.
        _ => return Err(Failure::Usage("expected DIR or --kubernetes".to_owned())),
    };
    let about = |path: &Path, reason: &dyn std::fmt::Display| {
        Failure::Runtime(format!("{}: {reason}", path.display()))
    };
    fs::create_dir_all(folder).map_err(|error| about(folder, &error))?;
    let mut told = String::new();
    let mut tell = |path: &Path, is_made: bool| {
        let _ = writeln!(told, "{} {}", told_of(is_made), path.display());
    };
    let password = folder.join(format!("{user}.password"));
    let token = folder.join("token");
    for path in [&folder.join("cluster-secret"), &token, &password] {
        let is_made = make(path).map_err(|error| about(path, &error))?;
        tell(path, is_made);
    }
    let users = folder.join(PASSWORDS);
    let text = passwd::read(&users, false).map_err(|error| about(&users, &error))?;
    let is_new = without_user(&text, user).is_err();
    if is_new {
        let secret = fs::read_to_string(&password).map_err(|error| about(&password, &error))?;
        let secret = Zeroizing::new(secret);
        let changed = with_user(&text, user, secret.trim_end().as_bytes(), Storage::Argon2id);
        let changed = changed.map_err(|error| about(&users, &error))?;
        passwd::replace(&users, &changed).map_err(|error| about(&users, &error))?;
    }
    tell(&users, is_new);
    print(&told)
}

fn told_of(is_made: bool) -> &'static str {
    if is_made { "made" } else { "kept" }
}

fn print(told: &str) -> Result<(), Failure> {
    io::stdout()
        .write_all(told.as_bytes())
        .map_err(|error| Failure::Runtime(error.to_string()))
}

/// 32 random bytes in hexadecimal.
fn random() -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(65));
    for byte in rand::random::<[u8; 32]>() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Writes a line of random digits to a new file; `false`: it is there already.
fn make(path: &Path) -> io::Result<bool> {
    let mut text = random();
    text.push('\n');
    // Only its owner reads such a file.
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(true),
        Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(failed) => Err(failed.error),
    }
}
