//! `heraldmq passwd`: users and their hashed passwords, in a file for the authenticators `passwordFile`
//! and `scram`.
//!
//! Invariants: a password is in no argument, and on no terminal; the file is replaced as a whole, so that
//! a broker never reads half of it; only its owner can read a new one.

use std::{
    fs::{self, Permissions},
    io::{self, BufRead as _, IsTerminal, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use authentication::{Storage, with_user, without_user};
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

use crate::failure::Failure;

/// The longest password: longer ones do not fit into CONNECT.
const MAX_PASSWORD_BYTES: u64 = 65_535;

/// Permissions of a new file.
const OWNER_ONLY: u32 = 0o600;

/// Add a user to a password file, or change a user's password.
///
/// On a terminal, the command asks for the password twice; otherwise it reads the password from standard input, without
/// a line break at its end. It creates the file if it is missing. A running broker reads the file again at SIGHUP.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The password file.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The user.
    #[arg(value_name = "USER")]
    user: String,

    /// Remove the user.
    #[arg(long, conflicts_with_all = ["scram", "stdin"])]
    delete: bool,

    /// Store what SCRAM-SHA-256 and SCRAM-SHA-512 need, instead of an argon2id hash. Logins with user
    /// name and password work too.
    #[arg(long)]
    scram: bool,

    /// Read the password from standard input, even if that is a terminal.
    #[arg(long)]
    stdin: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { file, user, .. } = arguments;
    let about_file =
        |reason: &dyn std::fmt::Display| Failure::Runtime(format!("{}: {reason}", file.display()));
    let text = read(file, arguments.delete).map_err(|error| about_file(&error))?;
    let changed = if arguments.delete {
        without_user(&text, user)
    } else {
        let password = password(arguments.stdin)?;
        let storage = if arguments.scram {
            Storage::Scram
        } else {
            Storage::Argon2id
        };
        with_user(&text, user, password.as_bytes(), storage)
    }
    .map_err(|error| about_file(&error))?;
    replace(file, &changed).map_err(|error| about_file(&error))
}

/// The file's text; a file that is not there is empty, if it may be made.
pub(crate) fn read(file: &Path, must_exist: bool) -> io::Result<String> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => Ok(String::new()),
        read => read,
    }
}

/// A password from standard input, or from a terminal, where it is asked for twice.
pub(crate) fn password(from_stdin: bool) -> Result<Zeroizing<String>, Failure> {
    let password = if from_stdin || !io::stdin().is_terminal() {
        read_password()
    } else {
        ask_twice()
    }
    .map_err(|error| Failure::Runtime(format!("the password: {error}")))?;
    match password.len() as u64 {
        0 => Err(Failure::Usage("the password is empty".to_owned())),
        1..=MAX_PASSWORD_BYTES => Ok(password),
        _ => Err(Failure::Usage(format!(
            "the password is longer than {MAX_PASSWORD_BYTES} bytes"
        ))),
    }
}

/// What is asked for at a terminal, and not shown.
pub(crate) fn asked(prompt: &str) -> Result<Zeroizing<String>, Failure> {
    let asked = rpassword::prompt_password(prompt).map(Zeroizing::new);
    asked.map_err(|error| Failure::Runtime(format!("nothing was read: {error}")))
}

/// A line of standard input.
pub(crate) fn line() -> Result<Zeroizing<String>, Failure> {
    let mut line = Zeroizing::new(String::new());
    let read = io::stdin()
        .lock()
        .take(MAX_PASSWORD_BYTES)
        .read_line(&mut line);
    read.map_err(|error| Failure::Runtime(format!("standard input: {error}")))?;
    let end = line.trim_end().len();
    line.truncate(end);
    Ok(line)
}

fn read_password() -> io::Result<Zeroizing<String>> {
    let mut password = Zeroizing::new(String::new());
    io::stdin()
        .take(MAX_PASSWORD_BYTES + 2)
        .read_to_string(&mut password)?;
    let end = password
        .strip_suffix('\n')
        .map_or(password.len(), |line| line.trim_end_matches('\r').len());
    password.truncate(end);
    Ok(password)
}

fn ask_twice() -> io::Result<Zeroizing<String>> {
    let password = Zeroizing::new(rpassword::prompt_password("Password: ")?);
    let again = Zeroizing::new(rpassword::prompt_password("Again: ")?);
    if again != password {
        return Err(io::Error::other("the two differ"));
    }
    Ok(password)
}

/// Writes a new file beside the old one, and puts it in its place. Permissions stay.
pub(crate) fn replace(file: &Path, text: &str) -> io::Result<()> {
    // A link is followed, not replaced.
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let permissions = fs::metadata(&file).map_or_else(
        |_| Permissions::from_mode(OWNER_ONLY),
        |metadata| metadata.permissions(),
    );
    let mut new = NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.as_file().set_permissions(permissions)?;
    new.as_file().sync_all()?;
    new.persist(&file)?;
    fs::File::open(folder)?.sync_all()
}
