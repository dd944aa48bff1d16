//! Runs Git, and other programs in a checkout.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

/// What Git prints.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = run(folder, "git".into(), arguments)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let command = arguments.join(" ");
        Err(format!("git {command}: {}\n", reason(&output)))
    }
}

/// Runs a program in a folder, whatever comes of it.
pub(crate) fn run(folder: &Path, program: OsString, arguments: &[&str]) -> Result<Output, String> {
    let name = program.to_string_lossy().into_owned();
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    // A hook of Git sets these, and they would name another checkout than `folder`.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"] {
        command.env_remove(variable);
    }
    command
        .output()
        .map_err(|error| format!("{name}: {error}\n"))
}

/// Whether the manifests of a checkout can be read and agree with its lock file; if not, the reason in one line.
pub(crate) fn loads(folder: &Path) -> Result<Result<(), String>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--locked", "--format-version", "1"];
    let output = run(folder, cargo, &arguments)?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    // Where the folder is says nothing.
    Ok(Err(
        reason(&output).replace(&format!("{}/", folder.display()), "")
    ))
}

/// What a command says of its failure, in one line.
fn reason(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && *line != "Caused by:")
        .collect();
    lines.join(" · ")
}

#[cfg(test)]
pub(crate) mod fixture {
    //! Repositories in temporary folders.

    use super::git;
    use crate::source::fixture::Tree;

    /// A repository whose first commit, on `main`, has these files.
    pub(crate) fn repository(files: &[(&str, &str)], subject: &str) -> Tree {
        let tree = Tree::new(files);
        git(&tree.0, &["init", "--quiet", "--initial-branch=main"]).expect("a repository");
        for (key, value) in [
            ("user.name", "a"),
            ("user.email", "a@localhost"),
            ("commit.gpgsign", "false"),
            ("tag.gpgsign", "false"),
        ] {
            git(&tree.0, &["config", key, value]).expect("it is set");
        }
        commit(&tree, subject);
        tree
    }

    /// Commits all that there is.
    pub(crate) fn commit(tree: &Tree, subject: &str) {
        git(&tree.0, &["add", "--all"]).expect("it is added");
        let arguments = [
            "commit",
            "--quiet",
            "--allow-empty",
            "--no-verify",
            "-m",
            subject,
        ];
        git(&tree.0, &arguments).expect("it is committed");
    }
}
