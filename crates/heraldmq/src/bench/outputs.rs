//! The files that records are kept in, and standard output.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use report::Record;

use crate::failure::Failure;

/// Where the records of a run go.
#[derive(clap::Args, Clone)]
pub(super) struct Outputs {
    /// Also write all figures and histograms to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write a report with charts to this file: one page that opens offline.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write the figures of each second to this file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// Files that can be written to.
pub(super) struct Opened<'a> {
    json: Option<(File, &'a Path)>,
    html: Option<(File, &'a Path)>,
    csv: Option<(File, &'a Path)>,
}

impl Outputs {
    /// Opens all of them. First: a run is too long to find out afterwards that its figures cannot be kept.
    pub(super) fn open(&self) -> Result<Opened<'_>, Failure> {
        Ok(Opened {
            json: create(self.json.as_deref())?,
            html: create(self.html.as_deref())?,
            csv: create(self.csv.as_deref())?,
        })
    }
}

fn create(path: Option<&Path>) -> Result<Option<(File, &Path)>, Failure> {
    let created = path.map(|path| match File::create(path) {
        Ok(file) => Ok((file, path)),
        Err(error) => Err(named(path, &error)),
    });
    created.transpose()
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Runtime(format!("{}: {error}", path.display()))
}

impl Opened<'_> {
    /// Writes one run to all that are wanted.
    pub(super) fn write_one(&mut self, record: &Record) -> Result<(), Failure> {
        let records = std::slice::from_ref(record);
        self.write_as(&|| record.to_json(), &record.scenario, records)
    }

    /// Writes several runs to all that are wanted, also if there is only one yet.
    pub(super) fn write(&mut self, title: &str, records: &[Record]) -> Result<(), Failure> {
        self.write_as(&|| report::records_to_json(records), title, records)
    }

    fn write_as(
        &mut self,
        json: &dyn Fn() -> String,
        title: &str,
        records: &[Record],
    ) -> Result<(), Failure> {
        let fill = |file: &mut Option<(File, &Path)>, content: &dyn Fn() -> String| match file {
            Some((file, path)) => {
                let written = file.write_all(content().as_bytes());
                written.map_err(|error| named(path, &error))
            }
            None => Ok(()),
        };
        fill(&mut self.json, json)?;
        fill(&mut self.html, &|| report::page(title, records))?;
        let samples = || records.iter().map(report::samples_csv).collect();
        fill(&mut self.csv, &samples)
    }
}

/// The records of a file that an earlier run wrote.
pub(super) fn read_records(path: &Path) -> Result<Vec<Record>, Failure> {
    let text = fs::read_to_string(path).map_err(|error| named(path, &error))?;
    report::records_from_json(&text).map_err(|error| named(path, &error))
}

/// On standard output. A reader that stopped listening changes nothing about the outcome.
pub(super) fn print(text: &str) {
    let _ = write!(io::stdout(), "{text}");
}

/// Writes a whole file.
pub(super) fn write_file(path: &Path, content: &str) -> Result<(), Failure> {
    fs::write(path, content).map_err(|error| named(path, &error))
}
