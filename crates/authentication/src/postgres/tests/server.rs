//! A PostgreSQL server of a test's own, from the packages of the system.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU16, Ordering};
use std::{env, io};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// The owner of the database, and its password.
pub(super) const OWNER: &str = "herald";
pub(super) const PASSWORD: &str = "the database's own";

/// What PostgreSQL runs as if the test is root, which it refuses: nobody.
const NOBODY: u32 = 65534;

/// A running server in a folder of its own. It ends with this.
pub(super) struct Server {
    folder: TempDir,
    programs: PathBuf,
    port: u16,
}

impl Server {
    /// A new database with a password; `None`: PostgreSQL is not installed, which is said.
    #[expect(clippy::print_stderr, reason = "why a test is skipped")]
    pub(super) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("skipped: there is no initdb; apt-get install postgresql");
            return None;
        };
        let server = Self {
            folder: TempDir::new().unwrap(),
            programs,
            port: free_port(),
        };
        server.initialise();
        server.up();
        Some(server)
    }

    /// Where it is, for the setting `connection`.
    pub(super) fn connection(&self) -> String {
        format!(
            "host={} port={} user={OWNER} dbname=postgres",
            self.folder.path().display(),
            self.port
        )
    }

    /// The same by TCP and TLS.
    pub(super) fn tls_connection(&self, host: &str) -> String {
        format!(
            "host={host} port={} user={OWNER} dbname=postgres sslmode=require",
            self.port
        )
    }

    /// A file with the password, or something else.
    pub(super) fn file(&self, name: &str, content: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        fs::write(&file, content).unwrap();
        self.give(&file);
        file
    }

    /// A file that nobody else may read.
    pub(super) fn private_file(&self, name: &str, content: &str) {
        let file = self.file(name, content);
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// A connection for the test itself.
    pub(super) async fn client(&self) -> Client {
        let mut config: tokio_postgres::Config = self.connection().parse().unwrap();
        config.password(PASSWORD);
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Starts it, and returns when it answers.
    pub(super) fn up(&self) {
        let log = self.folder.path().join("log");
        let options = format!(
            "-p {} -k {} -c listen_addresses=127.0.0.1 -c fsync=off",
            self.port,
            self.folder.path().display()
        );
        self.run(
            self.program("pg_ctl")
                .args(["start", "--wait", "--silent", "--options", &options])
                .arg("--log")
                .arg(&log)
                .arg("--pgdata")
                .arg(self.data()),
        );
    }

    /// Ends it as a crash would, and returns when it is gone.
    pub(super) fn down(&self) {
        self.run(&mut self.stop());
    }

    /// Changes settings for the next start.
    pub(super) fn configure(&self, settings: &str) {
        self.file("data/postgresql.auto.conf", settings);
    }

    fn initialise(&self) {
        self.give(self.folder.path());
        let password = self.file("password", PASSWORD);
        self.run(
            self.program("initdb")
                .args(["--username", OWNER, "--auth=scram-sha-256", "--no-sync"])
                .args(["--encoding=UTF8", "--locale=C", "--pwfile"])
                .arg(&password)
                .arg("--pgdata")
                .arg(self.data()),
        );
    }

    fn stop(&self) -> Command {
        let mut command = self.program("pg_ctl");
        command
            .args(["stop", "--wait", "--silent", "--mode=immediate", "--pgdata"])
            .arg(self.data());
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(self.folder.path());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn run(&self, command: &mut Command) {
        // Not through pipes: the server would keep them open.
        let output = self.folder.path().join("output");
        let file = fs::File::create(&output).unwrap();
        let status = command
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .status()
            .unwrap();
        assert!(
            status.success(),
            "{command:?}: {}",
            fs::read_to_string(output).unwrap()
        );
    }

    fn give(&self, path: &Path) {
        if is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be down already.
        let _ = self.stop().output();
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// The folder with initdb and pg_ctl. Debian keeps it out of the path.
fn programs() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(debian_folders().unwrap_or_default())
        .find(|folder| folder.join("initdb").exists() && folder.join("pg_ctl").exists())
}

fn debian_folders() -> io::Result<Vec<PathBuf>> {
    fs::read_dir("/usr/lib/postgresql")?
        .map(|entry| Ok(entry?.path().join("bin")))
        .collect()
}

/// A port that no connection takes for itself while the server is down: below those that the system chooses.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (process::id() % 1_000) as u16 * 10;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
