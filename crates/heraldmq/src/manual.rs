//! `heraldmq completions` and `heraldmq man`: what a shell and a reader need of the command line, made from its
//! declaration, so that it cannot be out of date.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use clap::{Command, ValueEnum};
use clap_complete::Shell;

use crate::failure::Failure;

/// Print a completion script for a shell.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArguments {
    /// The shell that the script is for.
    shell: CompletedShell,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq completions bash > ~/.local/share/bash-completion/completions/heraldmq
  heraldmq completions zsh > ~/.zfunc/_heraldmq
  heraldmq completions fish > ~/.config/fish/completions/heraldmq.fish

The Debian package installs these scripts.";

#[derive(Clone, Copy, ValueEnum)]
enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

/// Write manual pages, one for each command, into a folder.
///
/// `man -l DIR/heraldmq-serve.1` shows one. The Debian package installs the pages.
#[derive(clap::Args)]
pub(crate) struct ManArguments {
    /// The folder; created if it is missing.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(crate) fn completions(
    arguments: &CompletionsArguments,
    mut command: Command,
) -> Result<(), Failure> {
    let shell = match arguments.shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Zsh => Shell::Zsh,
        CompletedShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "heraldmq", &mut script);
    match io::stdout().write_all(&script) {
        // A reader that stopped listening changes nothing about the outcome.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Runtime(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn pages(arguments: &ManArguments, command: Command) -> Result<(), Failure> {
    let folder = &arguments.folder;
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .map_err(|error| {
            Failure::Runtime(format!(
                "manual pages cannot be written to {}: {error}",
                folder.display()
            ))
        })
}
