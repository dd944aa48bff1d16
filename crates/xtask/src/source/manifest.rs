//! The crates of the workspace that a manifest depends on, by the text of `Cargo.toml`.
//!
//! Deliberately absent: TOML. The manifests of this workspace name a dependency at the beginning of a line, or in the
//! header of a section of its own; a dependency on a crate of the workspace has the name of its folder.

/// Dependencies among `members`, sorted; those for tests and builds are left out.
pub(crate) fn dependencies(manifest: &str, members: &[String]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut in_dependencies = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let section = header.trim_end_matches(']').trim();
            in_dependencies = section == "dependencies" || section.ends_with(".dependencies");
            let own = section
                .strip_prefix("dependencies.")
                .or_else(|| section.split_once(".dependencies.").map(|(_, name)| name));
            if let Some(name) = own {
                found.push(name.trim_matches('"').to_owned());
            }
        } else if in_dependencies && !line.starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            found.push(name.trim_matches('"').to_owned());
        }
    }
    found.retain(|name| members.contains(name));
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_the_source_are_found_however_they_are_written() {
        let manifest = "\
[package]
name = \"a\"

[dependencies]
b.workspace = true
c = { path = \"../c\" }
# d.workspace = true
serde = \"1\"

[target.'cfg(unix)'.dependencies]
e = { workspace = true }

[dependencies.f]
workspace = true

[dev-dependencies]
g.workspace = true
";
        let members: Vec<String> = ["b", "c", "d", "e", "f", "g"].map(str::to_owned).into();
        assert_eq!(dependencies(manifest, &members), ["b", "c", "e", "f"]);
    }
}
