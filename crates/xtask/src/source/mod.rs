//! The crates of a checkout as the counts and rules see them: manifests, Rust files, tests told from source.
//!
//! Invariant: what is not there is empty, so that an older checkout is read with the same code.
//!
//! Deliberately absent: any judgement; `counts` and `check` have the rules.

mod file;
mod imports;
mod items;
mod lexer;
mod manifest;

use std::fs;
use std::io;
use std::path::Path;

pub(crate) use file::SourceFile;
pub(crate) use imports::{imports, paths};
pub(crate) use items::{
    Definition, Function, Implementation, Method, Shape, Trait, behind_angles, declared_names,
    definitions, functions, implementations, traits,
};
pub(crate) use lexer::Kind;

/// Crates of the workspace that are not in `crates`, as folders at its root.
const OUTSIDE: &[&str] = &["sim"];

/// A crate of the workspace.
#[derive(Debug)]
pub(crate) struct Crate {
    /// The name of its folder, which is also what others call it in their manifests.
    pub(crate) name: String,
    /// Where it is: `crates/NAME`, or one of [`OUTSIDE`].
    pub(crate) folder: String,
    /// Crates of the workspace that its source depends on, sorted.
    pub(crate) dependencies: Vec<String>,
    /// Files of `src`, sorted by path.
    pub(crate) source: Vec<SourceFile>,
    /// Files of `tests`, sorted by path.
    pub(crate) tests: Vec<SourceFile>,
}

impl Crate {
    /// `lib.rs`, else `main.rs`.
    pub(crate) fn root(&self) -> Option<&SourceFile> {
        ["lib", "main"].iter().find_map(|name| {
            let path = format!("{}/src/{name}.rs", self.folder);
            self.source.iter().find(|file| file.path == path)
        })
    }

    /// The path of a file within `src`, without `.rs`, in its parts; `mod.rs`, `lib.rs` and `main.rs` stand for their
    /// folders.
    pub(crate) fn module(&self, file: &SourceFile) -> Vec<String> {
        let prefix = format!("{}/src/", self.folder);
        let path = file.path.strip_prefix(&prefix).unwrap_or(&file.path);
        let mut parts: Vec<String> = path
            .trim_end_matches(".rs")
            .split('/')
            .map(str::to_owned)
            .collect();
        let stands_for_folder = match parts.as_slice() {
            [name] => name == "lib" || name == "main",
            [.., name] => name == "mod",
            [] => false,
        };
        if stands_for_folder {
            parts.pop();
        }
        parts
    }
}

/// All crates in `crates`, by name, and those of [`OUTSIDE`].
pub(crate) fn crates(root: &Path) -> io::Result<Vec<Crate>> {
    let names = names_in(&root.join("crates"))?;
    let inside = names
        .iter()
        .map(|name| (name.as_str(), format!("crates/{name}")));
    let outside = OUTSIDE.iter().map(|name| (*name, (*name).to_owned()));
    let mut found = Vec::new();
    for (name, folder) in inside.chain(outside) {
        let manifest = root.join(&folder).join("Cargo.toml");
        if !manifest.is_file() {
            continue;
        }
        let mut member = Crate {
            name: name.to_owned(),
            dependencies: manifest::dependencies(&fs::read_to_string(manifest)?, &names),
            source: rust_files(root, &format!("{folder}/src"))?,
            tests: rust_files(root, &format!("{folder}/tests"))?,
            folder,
        };
        mark_declared_tests(&mut member);
        found.push(member);
    }
    Ok(found)
}

/// All files with an ending below a folder, as paths from the root, sorted. None if there is no such folder.
pub(crate) fn files_below(root: &Path, folder: &str, ending: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    if root.join(folder).is_dir() {
        for name in names_in(&root.join(folder))? {
            let path = format!("{folder}/{name}");
            if root.join(&path).is_dir() {
                found.extend(files_below(root, &path, ending)?);
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn rust_files(root: &Path, folder: &str) -> io::Result<Vec<SourceFile>> {
    files_below(root, folder, ".rs")?
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(root.join(&path))?;
            Ok(SourceFile::new(&path, text))
        })
        .collect()
}

fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        // A name that is not UTF-8 is no file of ours.
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Marks the files whose `mod` declarations are for tests only, and those below them.
fn mark_declared_tests(member: &mut Crate) {
    let mut declared: Vec<Vec<String>> = Vec::new();
    for file in &member.source {
        for index in 0..file.tokens.len() {
            if file.is_test(index) && file.at(index) == "mod" && file.at(index + 2) == ";" {
                let mut module = member.module(file);
                module.push(file.at(index + 1).to_owned());
                declared.push(module);
            }
        }
    }
    let tests: Vec<bool> = member
        .source
        .iter()
        .map(|file| {
            let module = member.module(file);
            declared.iter().any(|declared| module.starts_with(declared))
        })
        .collect();
    for (file, test) in member.source.iter_mut().zip(tests) {
        if test {
            file.set_test();
        }
    }
}

#[cfg(test)]
pub(crate) mod fixture {
    //! Crates made of text, and small trees in temporary folders.

    use super::*;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A crate named `a`, of files of `src` and their text.
    pub(crate) fn member(files: &[(&str, &str)]) -> Crate {
        let mut member = Crate {
            name: "a".to_owned(),
            folder: "crates/a".to_owned(),
            dependencies: Vec::new(),
            source: files
                .iter()
                .map(|(path, text)| {
                    SourceFile::new(&format!("crates/a/src/{path}"), (*text).to_owned())
                })
                .collect(),
            tests: Vec::new(),
        };
        mark_declared_tests(&mut member);
        member
    }

    /// A temporary folder with files, removed when dropped.
    pub(crate) struct Tree(pub(crate) PathBuf);

    impl Tree {
        pub(crate) fn new(files: &[(&str, &str)]) -> Self {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let root = std::env::temp_dir().join(format!("xtask-{}-{number}", std::process::id()));
            let tree = Self(root);
            for (path, text) in files {
                tree.write(path, text);
            }
            tree
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::{Tree, member};
    use super::*;

    #[test]
    fn modules_are_named_by_their_files() {
        let files = [
            ("lib.rs", ""),
            ("b.rs", ""),
            ("c/mod.rs", ""),
            ("c/d.rs", ""),
        ];
        let member = member(&files);
        let names: Vec<String> = member
            .source
            .iter()
            .map(|file| member.module(file).join("::"))
            .collect();
        assert_eq!(names, ["", "b", "c", "c::d"]);
    }

    #[test]
    fn files_declared_for_tests_are_tests_with_what_is_below() {
        let member = member(&[
            ("lib.rs", "mod b;\n#[cfg(test)]\nmod model;\n"),
            ("b.rs", ""),
            ("model.rs", "mod part;"),
            ("model/part.rs", ""),
        ]);
        let tests: Vec<bool> = member.source.iter().map(SourceFile::is_test_file).collect();
        assert_eq!(tests, [false, false, true, true]);
    }

    #[test]
    fn a_checkout_is_read_crate_by_crate() {
        let tree = Tree::new(&[
            (
                "crates/a/Cargo.toml",
                "[dependencies]\nb.workspace = true\nserde = \"1\"\n",
            ),
            ("crates/a/src/lib.rs", "//! A.\n"),
            ("crates/a/src/c/d.rs", ""),
            ("crates/a/tests/e.rs", ""),
            ("crates/b/Cargo.toml", "[package]\n"),
            ("crates/notes/README.md", ""),
            ("sim/Cargo.toml", "[dependencies]\na.workspace = true\n"),
            ("sim/src/main.rs", "//! S.\n"),
            ("sim/src/c/mod.rs", ""),
        ]);
        let found = crates(&tree.0).expect("a tree");
        let names: Vec<&str> = found.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "sim"]);
        let first = found.first().expect("three crates");
        assert_eq!(first.dependencies, ["b"]);
        assert_eq!((first.source.len(), first.tests.len()), (2, 1));
        assert!(
            first
                .root()
                .is_some_and(|file| file.path.ends_with("lib.rs"))
        );
        let last = found.last().expect("three crates");
        assert_eq!(last.dependencies, ["a"]);
        let modules: Vec<Vec<String>> = last.source.iter().map(|file| last.module(file)).collect();
        assert_eq!(modules, [vec!["c".to_owned()], Vec::new()]);
        assert!(
            last.root()
                .is_some_and(|file| file.path == "sim/src/main.rs")
        );
    }
}
