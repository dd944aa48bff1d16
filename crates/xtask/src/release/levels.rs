//! The levels of `store-state`: each one belongs to a release, to commits before there were releases, or to builds for tests.
//!
//! A release that wrote a level which a later one names as its own could never be told from it in a cluster.

use crate::version::Version;

/// What is wrong with the levels for a program of this version, a line each.
pub(super) fn violations(source: &str, version: &Version) -> Vec<String> {
    let table = source.split("pub const LEVELS: ").nth(1);
    let table = table.and_then(|text| text.split("\n];").next());
    let Some(table) = table else {
        return vec!["there is no table of levels".to_owned()];
    };
    let mut wrong = Vec::new();
    let mut found = 0;
    // What stands before an entry is the end of the one before it, with the attribute of this one.
    let entries: Vec<&str> = table.split("LevelFacts {").collect();
    for (before, entry) in entries.iter().zip(entries.iter().skip(1)) {
        if before
            .trim_end()
            .ends_with("#[cfg(feature = \"trial-level\")]")
        {
            continue;
        }
        found += 1;
        let field = |name: &str| {
            let value = entry.split(&format!("{name}: ")).nth(1)?;
            value.split(",\n").next()
        };
        let level = field("level").unwrap_or("a level without a name");
        let programs = field("programs").unwrap_or("").trim_matches('"');
        if programs.starts_with("up to commit ") {
            continue;
        }
        match programs.parse::<Version>() {
            Ok(since) if since <= *version => {}
            Ok(_) => wrong.push(format!(
                "{level} is of the release {programs}, which is later than {version}"
            )),
            Err(_) => wrong.push(format!("{level} names no release: `{programs}`")),
        }
    }
    if found == 0 {
        wrong.push("there are no levels".to_owned());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
pub const LEVELS: &[LevelFacts] = &[
    LevelFacts {
        level: Level::SPLITS,
        programs: \"up to commit 3a5c7c6\",
        changes: \"a, b\",
    },
    LevelFacts {
        level: Level::RAISED,
        programs: \"0.2.0\",
        changes: \"c\",
    },
    #[cfg(feature = \"trial-level\")]
    LevelFacts {
        level: Level::TRIAL,
        programs: \"a build for tests\",
        changes: \"d\",
    },
];
";

    fn of(source: &str, version: &str) -> Vec<String> {
        violations(source, &version.parse().expect("a version"))
    }

    #[test]
    fn a_level_belongs_to_this_release_or_an_earlier_one() {
        for version in ["0.2.0", "0.2.1", "1.0.0"] {
            assert_eq!(of(SOURCE, version), Vec::<String>::new());
        }
        let later = "Level::RAISED is of the release 0.2.0, which is later than 0.1.9";
        assert_eq!(of(SOURCE, "0.1.9"), [later]);
        let none = SOURCE.replace("0.2.0", "not released");
        assert_eq!(
            of(&none, "0.2.0"),
            ["Level::RAISED names no release: `not released`"]
        );
        let trial = SOURCE.replace("#[cfg(feature = \"trial-level\")]", "");
        assert_eq!(
            of(&trial, "0.2.0"),
            ["Level::TRIAL names no release: `a build for tests`"]
        );
    }

    #[test]
    fn a_table_that_cannot_be_read_is_no_release() {
        assert_eq!(of("", "0.2.0"), ["there is no table of levels"]);
        assert_eq!(
            of("pub const LEVELS: &[] = &[\n];", "0.2.0"),
            ["there are no levels"]
        );
    }

    #[test]
    fn the_levels_of_this_program_are_of_its_version() {
        let levels = include_str!("../../../store-state/src/level.rs");
        assert_eq!(of(levels, env!("CARGO_PKG_VERSION")), Vec::<String>::new());
    }
}
