//! `heraldmq check-config`: whether the broker would take a configuration: the file, the environment and the command line,
//! as `serve` puts them together, and the files that it names: certificates and keys, users, tokens, rules, secrets, bans.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use store::RetainedForecast;
use store_state::retain::RetainedAmount;

use crate::{
    failure::{Failure, complain},
    layers::Layers,
    serve::logging,
};

/// Where the packages, and the files in `conf`, have what a configuration names.
const INSTALLED: &str = "/etc/heraldmq";

/// Check a configuration file and report errors.
///
/// Prints OK and exits with 0, or prints one line for each problem and exits with 2. Options come from the file, the
/// environment, --set and --data-dir, as for `serve`. With --data-dir, the folder of a node that does not run, the command also says
/// how many of its retained messages `retain` would remove. The command also reads the files that the options name, as
/// `serve` does: certificates and keys, which must match, users, tokens, rules, secrets, bans. Relative paths start in
/// the current directory. On a machine without the folder /etc/heraldmq, files in that folder cause warnings only. The
/// command opens no port and no connection. docs/reference/configuration.md describes each option.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration file (YAML).
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    layers: Layers,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let loaded = arguments.layers.load(Some(&arguments.file));
    let loaded = loaded.map_err(|error| Failure::Usage(error.to_string()))?;
    logging::filter(&loaded.config.log.level).map_err(Failure::Usage)?;
    let problems = broker::check_files(&loaded.config);
    let problems = problems.iter().map(ToString::to_string).collect();
    let (not_here, problems) = split(problems, Path::new(INSTALLED).exists());
    if !problems.is_empty() {
        return Err(Failure::Usage(problems.join("\n")));
    }
    for warning in &loaded.warnings {
        complain(&format!("warning: {warning}"));
    }
    for problem in &not_here {
        complain(&format!(
            "warning: not checked, as this machine has no {INSTALLED}: {problem}"
        ));
    }
    if let Some(folder) = arguments.layers.data_dir().filter(|folder| folder.exists()) {
        match broker::retained_forecast(&loaded.config, folder) {
            Ok(Some(forecast)) => say(&text(&forecast)),
            Ok(None) => {}
            Err(error) => complain(&format!(
                "warning: the retained messages were not looked at: {error}"
            )),
        }
    }
    say("OK");
    Ok(())
}

fn say(line: &str) {
    // A reader that stopped listening changes nothing about the outcome.
    let _ = writeln!(io::stdout(), "{line}");
}

fn text(forecast: &RetainedForecast) -> String {
    let RetainedForecast {
        messages,
        too_old,
        too_many,
        of_unknown_age,
    } = forecast;
    let RetainedAmount(removed) = too_old.plus(*too_many);
    let [messages, too_old, too_many, of_unknown_age] =
        [messages, too_old, too_many, of_unknown_age].map(|of| of.0);
    let mut text = format!(
        "retain: {removed} of {messages} retained messages would be removed: {too_old} for their age, {too_many} as too many"
    );
    if of_unknown_age > 0 {
        text +=
            &format!("; {of_unknown_age} count from now on, as it is not known how old they are");
    }
    text
}

/// Problems with files that another machine is to have, and the others: a configuration may be checked before it is copied
/// to where it belongs. `is_installed`: this may be that machine.
fn split(problems: Vec<String>, is_installed: bool) -> (Vec<String>, Vec<String>) {
    let folder = format!("{INSTALLED}/");
    let is_elsewhere = |problem: &String| !is_installed && problem.contains(&folder);
    problems.into_iter().partition(is_elsewhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_an_installation_are_missed_only_where_there_is_one() {
        let secret =
            "cannot use /etc/heraldmq/cluster-secret (cluster secret): No such file".to_owned();
        let others = [
            "cannot use cluster-secret (cluster secret): No such file".to_owned(),
            "cannot use /etc/herald/cluster-secret (cluster secret): No such file".to_owned(),
        ];
        let all = || [std::slice::from_ref(&secret), &others].concat();
        assert_eq!(split(all(), false), (vec![secret.clone()], others.to_vec()));
        assert_eq!(split(all(), true), (vec![], all()));
    }
}
