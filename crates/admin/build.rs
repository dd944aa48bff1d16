//! The files of the dashboard, in a folder of this build, from which they go into the program.
//!
//! With Node.js they are built from `dashboard/`, whose libraries npm fetches as Cargo does those of Rust. Without, they are those of
//! `dashboard/dist`, which an archive of sources has; else a page says how to get the dashboard, and all else works.
//!
//! Invariant: a build never fails for want of Node.js, npm or a network, unless `HERALD_DASHBOARD_IS_NEEDED` is set, as for what
//! others are given. It changes nothing outside of this folder but `dashboard/node_modules`.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What changes the files that are built.
const SOURCES: [&str; 4] = ["src", "dev/build.mjs", "package.json", "package-lock.json"];

/// Set: the build fails without the dashboard.
const IS_NEEDED: &str = "HERALD_DASHBOARD_IS_NEEDED";

/// What npm may wait for: the build of the broker waits for it.
const NPM: [&str; 6] = [
    "ci",
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--fetch-retries=1",
    "--fetch-timeout=30000",
];

const STAND_IN: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<title>HeraldMQ</title>
<h1>The broker runs</h1>
<p>This program was built without its dashboard, as Node.js 18 or newer, or a network, was missing. With both there, a further
build has it. <code>heraldmq top</code>, <code>heraldmq clients</code> and <code>/api/v1</code> are there all the same.
</html>
";

fn main() {
    let own = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets it"));
    let dashboard = own.join("../../dashboard");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={IS_NEEDED}");
    for source in SOURCES {
        println!(
            "cargo::rerun-if-changed={}",
            dashboard.join(source).display()
        );
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets it")).join("dashboard");
    let dist = dashboard.join("dist");
    let done = if let Err(missing) = build(&dashboard, &out) {
        // If it is not there, this runs again at the next build.
        println!("cargo::rerun-if-changed={}", dist.display());
        if dist.join("index.html").exists() {
            clear(&out).and_then(|()| copy(&dist, &out))
        } else if env::var_os(IS_NEEDED).is_some() {
            println!("cargo::error=the dashboard cannot be built: {missing}");
            return;
        } else {
            println!("cargo::warning=the broker will have no dashboard: {missing}");
            clear(&out).and_then(|()| stand_in(&out))
        }
    } else {
        Ok(())
    };
    done.and_then(|()| name(&out))
        .expect("files can be written where Cargo builds");
}

/// Writes the type that has the files, for `src/dashboard.rs`.
fn name(out: &Path) -> io::Result<()> {
    let text = format!("#[derive(Embed)]\n#[folder = {:?}]\nstruct Files;\n", out);
    fs::write(out.with_file_name("files.rs"), text)
}

/// Builds the files into a folder, or says what is missing for it.
fn build(dashboard: &Path, out: &Path) -> Result<(), String> {
    let installed = dashboard.join("node_modules/.package-lock.json");
    let wanted = dashboard.join("package-lock.json");
    let is_current = matches!(
        (modified(&installed), modified(&wanted)),
        (Some(installed), Some(wanted)) if installed >= wanted
    );
    if !is_current {
        run(Command::new("npm").args(NPM).current_dir(dashboard))?;
    }
    run(Command::new("node")
        .arg("dev/build.mjs")
        .arg(out)
        .current_dir(dashboard))
}

fn modified(path: &Path) -> Option<std::time::SystemTime> {
    fs::metadata(path).and_then(|of| of.modified()).ok()
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let said = said.lines().find(|line| !line.trim().is_empty());
    Err(format!("{name}: {}", said.unwrap_or("it failed")))
}

/// Removes what an earlier build, or half of this one, has left there.
fn clear(out: &Path) -> io::Result<()> {
    if out.exists() {
        fs::remove_dir_all(out)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn stand_in(out: &Path) -> io::Result<()> {
    fs::create_dir_all(out)?;
    fs::write(out.join("index.html"), STAND_IN)
}
