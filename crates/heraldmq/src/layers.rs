//! What beside the configuration file `serve` and `check-config` take options from: the environment and the command line.

use std::path::{Path, PathBuf};

use config::{Config, ConfigError, Loaded};

/// Options of the command line.
#[derive(clap::Args)]
pub(crate) struct Layers {
    /// Folder for durable state; created if it is missing.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Set one option by its path; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Layers {
    /// The folder for durable state that the command line names.
    pub(crate) fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }

    /// Puts the configuration together from the file, the environment of this process and these options.
    ///
    /// # Errors
    /// Every problem that was found, with where it comes from.
    pub(crate) fn load(&self, file: Option<&Path>) -> Result<Loaded, ConfigError> {
        // What is not Unicode is no option's name or value.
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Config::load(file, environment, &self.set, self.data_dir.clone())
    }
}
