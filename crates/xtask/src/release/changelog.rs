//! The changelog: `## Unreleased` on top, and below it a section for each release, `## 0.2.0 (2027-01-31)`. A section may have its
//! version before it has its date.

use std::fmt::Write as _;

/// The heading of what is not released yet.
const UNRELEASED: &str = "## Unreleased";

/// The changelog with the section of a version that is released on a day: what is unreleased, or what stands below the version
/// without a date if nothing is unreleased.
pub(super) fn released(changelog: &str, version: &str, date: &str) -> Result<String, String> {
    let (before, rest) = changelog
        .split_once(&format!("\n{UNRELEASED}\n"))
        .ok_or("there is no section Unreleased")?;
    let (unreleased, older) = rest.split_at(rest.find("\n## ").map_or(rest.len(), |at| at + 1));
    // What belongs there stays there.
    let (comment, content) = match unreleased.find("-->") {
        Some(at) => unreleased.split_at(at + "-->".len()),
        None => ("", unreleased),
    };
    let heading = format!("## {version}\n");
    let dated = format!("## {version} ({date})\n");
    if older
        .lines()
        .any(|line| line.starts_with(&format!("## {version} (")))
    {
        return Err(format!("{version} is released already"));
    }
    let has_section = older.starts_with(&heading) || older.contains(&format!("\n{heading}"));
    match (content.trim(), has_section) {
        ("", false) => Err("nothing is unreleased".to_owned()),
        ("", true) => Ok(changelog.replacen(&format!("\n{heading}"), &format!("\n{dated}"), 1)),
        (_, true) => Err(format!(
            "there is a section {version}, and something is unreleased as well"
        )),
        (content, false) => {
            let mut text = format!("{before}\n{UNRELEASED}\n");
            let comment = comment.trim();
            if !comment.is_empty() {
                let _ = writeln!(text, "\n{comment}");
            }
            let _ = write!(text, "\n{dated}\n{content}\n");
            if !older.is_empty() {
                let _ = write!(text, "\n{older}");
            }
            Ok(text)
        }
    }
}

/// What stands below the heading of a release.
pub(super) fn notes(changelog: &str, version: &str) -> Result<String, String> {
    let start = format!("## {version} (");
    let mut lines = changelog
        .lines()
        .skip_while(|line| !line.starts_with(&start));
    lines
        .next()
        .ok_or_else(|| format!("{version} has no section with a date"))?;
    let section: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    Ok(format!("{}\n", section.join("\n").trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMENT: &str = "<!-- what belongs here -->";

    fn changelog(unreleased: &str, rest: &str) -> String {
        format!("# Changelog\n\n## Unreleased\n\n{COMMENT}\n{unreleased}{rest}")
    }

    #[test]
    fn what_is_unreleased_becomes_the_section_of_the_version() {
        let before = changelog("\n### Added\n- A.\n", "\n## 0.1.0 (2026-12-01)\n\n- All.\n");
        let after = released(&before, "0.2.0", "2027-01-31").expect("it is released");
        let expect = changelog(
            "",
            "\n## 0.2.0 (2027-01-31)\n\n### Added\n- A.\n\n## 0.1.0 (2026-12-01)\n\n- All.\n",
        );
        assert_eq!(after, expect);
        assert_eq!(notes(&after, "0.2.0"), Ok("### Added\n- A.\n".to_owned()));
        assert_eq!(notes(&after, "0.1.0"), Ok("- All.\n".to_owned()));
        let again = released(&after, "0.2.0", "2027-02-01");
        assert_eq!(again, Err("0.2.0 is released already".to_owned()));
        assert_eq!(
            released(&after, "0.3.0", "2027-02-01"),
            Err("nothing is unreleased".to_owned())
        );
    }

    #[test]
    fn a_section_that_waits_for_its_date_gets_it() {
        let before = changelog("", "\n## 0.1.0\n\n- All.\n");
        assert!(notes(&before, "0.1.0").is_err());
        let after = released(&before, "0.1.0", "2026-12-01").expect("it is released");
        assert_eq!(after, changelog("", "\n## 0.1.0 (2026-12-01)\n\n- All.\n"));
        let both = changelog("\n- B.\n", "\n## 0.1.0\n\n- All.\n");
        assert!(released(&both, "0.1.0", "2026-12-01").is_err());
    }

    #[test]
    fn a_first_section_without_a_comment_is_released_too() {
        let after = released("# C\n\n## Unreleased\n\n- A.\n", "0.1.0", "2026-12-01");
        let expect = "# C\n\n## Unreleased\n\n## 0.1.0 (2026-12-01)\n\n- A.\n";
        assert_eq!(after, Ok(expect.to_owned()));
        assert!(released("# C\n", "0.1.0", "2026-12-01").is_err());
    }
}
