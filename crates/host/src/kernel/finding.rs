//! What is said of a setting.

use std::fmt;

/// How bad it is; the later, the worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Worth knowing; may do no harm.
    Note,
    /// All connections fit, but something takes longer.
    Slows,
    /// Not all connections fit.
    Limits,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Note => "note",
            Self::Slows => "slows",
            Self::Limits => "limits",
        })
    }
}

/// How to change a setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remedy {
    /// For a shell of root; holds until the next start of the machine or of the program.
    pub command: String,
    /// What keeps it: a file, with the line to write.
    pub permanent: String,
    /// That line, of a file for sysctl(8); `None`: it is another file.
    pub line: Option<String>,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; to keep it: {}", self.command, self.permanent)
    }
}

/// What is wrong with a setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Complaint {
    /// How bad it is.
    pub severity: Severity,
    /// What comes of it, and what the judgement rests on.
    pub why: String,
    /// `None` if no setting helps.
    pub remedy: Option<Remedy>,
}

/// A setting, its value and its verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// As sysctl(8) names it, or what it is.
    pub setting: &'static str,
    /// Its value, or why it is not known.
    pub now: String,
    /// What is needed; `any` where it does not matter.
    pub wanted: String,
    /// `None` if it is as wanted.
    pub complaint: Option<Complaint>,
}

impl Row {
    /// `None` if there is nothing to complain of.
    #[must_use]
    pub fn into_finding(self) -> Option<Finding> {
        Some(Finding {
            setting: self.setting,
            now: self.now,
            wanted: self.wanted,
            complaint: self.complaint?,
        })
    }
}

/// A setting that is not as wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// As in [`Row`].
    pub setting: &'static str,
    /// As in [`Row`].
    pub now: String,
    /// As in [`Row`].
    pub wanted: String,
    /// What is wrong with it.
    pub complaint: Complaint,
}

/// What is wrong, and on a second line what changes it if anything does. No newline at the end.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Complaint {
            severity,
            why,
            remedy,
        } = &self.complaint;
        let (setting, now, wanted) = (self.setting, &self.now, &self.wanted);
        write!(f, "{severity}: {setting} is {now}, wanted {wanted}: {why}")?;
        match remedy {
            Some(remedy) => write!(f, "\n  {remedy}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_two_lines_with_a_remedy_and_one_without() {
        let mut finding = Finding {
            setting: "net.core.somaxconn",
            now: "128".into(),
            wanted: "at least 4096".into(),
            complaint: Complaint {
                severity: Severity::Slows,
                why: "reasons".into(),
                remedy: Some(Remedy {
                    command: "sysctl -w x=1".into(),
                    permanent: "x=1 in a file".into(),
                    line: Some("x = 1".into()),
                }),
            },
        };
        assert_eq!(
            finding.to_string(),
            "slows: net.core.somaxconn is 128, wanted at least 4096: reasons\n  \
             sysctl -w x=1; to keep it: x=1 in a file"
        );
        finding.complaint.remedy = None;
        assert_eq!(
            finding.to_string(),
            "slows: net.core.somaxconn is 128, wanted at least 4096: reasons"
        );
    }
}
