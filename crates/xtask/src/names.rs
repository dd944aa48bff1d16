//! What a name means where it stands: the type, trait or function of the same crate that a path leads to.
//!
//! A path is resolved as the compiler resolves it, as far as tokens tell: an item of the same module, a child module,
//! what a `use` brings (renamed, grouped, by `*`, or handed on by `pub use`), `crate`, `super`, `self`, the crate's own
//! name, and aliases by `type`. A module in braces is a module of its own.
//!
//! Invariant: what leads out of the crate, or nowhere, means nothing; a ring of exports ends the search.
//!
//! Deliberately absent: items that a macro writes, and shadowing. A `use` or an item within the body of a function
//! belongs to the module that the function stands in. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::source::{self, Crate, Definition, Function, Implementation, SourceFile, Trait};

/// A file, with what it declares.
pub(crate) struct Declared<'a> {
    pub(crate) file: &'a SourceFile,
    /// The module of the file.
    pub(crate) module: Vec<String>,
    /// Modules in braces: their tokens and their names, outer ones first.
    braces: Vec<(Range<usize>, String)>,
    pub(crate) blocks: Vec<Implementation>,
    pub(crate) traits: Vec<Trait>,
    pub(crate) functions: Vec<Function>,
    /// With the index of its tokens.
    pub(crate) definitions: Vec<(usize, Definition)>,
}

/// What a path leads to: an index of a file in [`Names::files`], and one of its `definitions`, `traits` or `functions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    Type(usize, usize),
    Trait(usize, usize),
    Function(usize, usize),
}

/// The names of a crate.
pub(crate) struct Names<'a> {
    /// Those that are not for tests only, in the order of the crate.
    pub(crate) files: Vec<Declared<'a>>,
    modules: BTreeMap<Vec<String>, Module>,
    /// What the crate calls itself in a `use`: of its program, or of its examples.
    own: String,
}

#[derive(Default)]
struct Module {
    items: BTreeMap<String, Vec<Item>>,
    /// Names and the paths that stand for them, by `use` or `type`; `*` is the name of all.
    imports: Vec<(String, Vec<String>)>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(member: &'a Crate) -> Self {
        let mut names = Self {
            files: Vec::new(),
            modules: BTreeMap::new(),
            own: member.name.replace('-', "_"),
        };
        for file in member.source.iter().filter(|file| !file.is_test_file()) {
            let declared = Declared::of(file, member.module(file));
            names.add(&declared);
            names.files.push(declared);
        }
        names
    }

    fn add(&mut self, declared: &Declared<'_>) {
        let at = self.files.len();
        let file = declared.file;
        let mut items: Vec<(Vec<String>, &str, Item)> = Vec::new();
        for (number, (index, definition)) in declared.definitions.iter().enumerate() {
            let module = declared.module_at(*index);
            items.push((module, &definition.name, Item::Type(at, number)));
        }
        for (number, kind) in declared.traits.iter().enumerate() {
            let module = declared.module_at(kind.body.start);
            items.push((module, &kind.name, Item::Trait(at, number)));
        }
        for (number, function) in declared.functions.iter().enumerate() {
            let module = declared.module_at(function.body.start);
            items.push((module, &function.name, Item::Function(at, number)));
        }
        for (module, name, item) in items {
            let module = self.modules.entry(module).or_default();
            module.items.entry(name.to_owned()).or_default().push(item);
        }
        // A folder without a file of its own is a module all the same.
        for length in 0..=declared.module.len() {
            let above = declared.module.iter().take(length).cloned().collect();
            self.modules.entry(above).or_default();
        }
        for (range, _) in &declared.braces {
            let module = declared.module_at(range.start);
            self.modules.entry(module).or_default();
        }
        for index in file.code() {
            let brought = match file.at(index) {
                "use" => source::imports(file, index).0,
                "type" => alias(file, index).into_iter().collect(),
                _ => continue,
            };
            let module = declared.module_at(index);
            let module = self.modules.entry(module).or_default();
            module.imports.extend(brought);
        }
    }

    /// The type that a path leads to from the token of this index of a file.
    pub(crate) fn kind(&self, file: &Declared<'_>, index: usize, path: &[String]) -> Option<Item> {
        let is_type = |item| matches!(item, Item::Type(..));
        self.find(&file.module_at(index), path, is_type, &mut Seen::new())
    }

    /// The trait that a path leads to.
    pub(crate) fn of_trait(
        &self,
        file: &Declared<'_>,
        index: usize,
        path: &[String],
    ) -> Option<Item> {
        let is_trait = |item| matches!(item, Item::Trait(..));
        self.find(&file.module_at(index), path, is_trait, &mut Seen::new())
    }

    /// The function that a path leads to.
    pub(crate) fn function(
        &self,
        file: &Declared<'_>,
        index: usize,
        path: &[String],
    ) -> Option<Item> {
        let is_function = |item| matches!(item, Item::Function(..));
        self.find(&file.module_at(index), path, is_function, &mut Seen::new())
    }

    /// `seen`: what is being looked for, so that a ring of exports ends.
    fn find(
        &self,
        from: &[String],
        path: &[String],
        wanted: fn(Item) -> bool,
        seen: &mut Seen,
    ) -> Option<Item> {
        let (name, modules) = path.split_last()?;
        let at = self.module(from, modules, seen)?;
        if !seen.insert((at.clone(), name.clone(), false)) {
            return None;
        }
        let module = self.modules.get(&at)?;
        let items = module.items.get(name).into_iter().flatten();
        if let Some(item) = items.copied().find(|item| wanted(*item)) {
            return Some(item);
        }
        let mut named = module.imports.iter().filter(|(other, _)| other == name);
        if let Some(item) = named.find_map(|(_, path)| self.find(&at, path, wanted, seen)) {
            return Some(item);
        }
        let mut all = module.imports.iter().filter(|(other, _)| other == "*");
        all.find_map(|(_, path)| {
            let path = [path, std::slice::from_ref(name)].concat();
            self.find(&at, &path, wanted, seen)
        })
    }

    /// The module that a path leads to.
    fn module(&self, from: &[String], path: &[String], seen: &mut Seen) -> Option<Vec<String>> {
        let mut at = from.to_vec();
        for (step, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => {
                    at.pop()?;
                }
                _ => {
                    at = match self.child(&at, name, seen) {
                        Some(child) => child,
                        None if step == 0 && *name == self.own => Vec::new(),
                        None => return None,
                    };
                }
            }
        }
        Some(at)
    }

    /// The module of this name in another one, or what a `use` there brings under it.
    fn child(&self, at: &[String], name: &String, seen: &mut Seen) -> Option<Vec<String>> {
        let child = [at, std::slice::from_ref(name)].concat();
        if self.modules.contains_key(&child) {
            return Some(child);
        }
        if !seen.insert((at.to_vec(), name.clone(), true)) {
            return None;
        }
        let imports = &self.modules.get(at)?.imports;
        let mut named = imports.iter().filter(|(other, _)| other == name);
        if let Some(found) = named.find_map(|(_, path)| self.module(at, path, seen)) {
            return Some(found);
        }
        let mut all = imports.iter().filter(|(other, _)| other == "*");
        all.find_map(|(_, path)| {
            let exporter = self.module(at, path, seen)?;
            self.child(&exporter, name, seen)
        })
    }
}

/// Modules with the names that are looked for in them, and whether as modules.
type Seen = BTreeSet<(Vec<String>, String, bool)>;

impl<'a> Declared<'a> {
    fn of(file: &'a SourceFile, module: Vec<String>) -> Self {
        let blocks = source::implementations(file);
        let traits = source::traits(file);
        let functions = source::functions(file, &blocks, &traits);
        let braces = file
            .code()
            .filter(|index| file.at(*index) == "mod" && file.at(index + 2) == "{")
            .map(|index| {
                let end = file.behind_bracket(index + 2);
                (index + 3..end, file.at(index + 1).to_owned())
            })
            .collect();
        Self {
            file,
            module,
            braces,
            blocks,
            traits,
            functions,
            definitions: source::definitions(file),
        }
    }

    /// The module that the token of this index is in.
    pub(crate) fn module_at(&self, index: usize) -> Vec<String> {
        let inner = self
            .braces
            .iter()
            .filter(|(range, _)| range.contains(&index))
            .map(|(_, name)| name.clone());
        self.module.iter().cloned().chain(inner).collect()
    }
}

/// `type A<T> = b::C<T>;` at this index: the name, and the path that stands for it.
fn alias(file: &SourceFile, index: usize) -> Option<(String, Vec<String>)> {
    let mut at = index + 2;
    if file.at(at) == "<" {
        at = source::behind_angles(file, at);
    }
    if file.at(at) != "=" {
        return None;
    }
    let mut path = Vec::new();
    at += 1;
    while file.kind(at) == Some(source::Kind::Word) {
        path.push(file.at(at).to_owned());
        at += 1;
        if file.at(at) != "::" {
            break;
        }
        at += 1;
    }
    (!path.is_empty()).then(|| (file.at(index + 1).to_owned(), path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::member;

    /// Where the type is that `path` leads to from the beginning of `c.rs`: the module of its file, and its line.
    fn check(files: &[(&str, &str)], path: &str, expect: Option<(&str, usize)>) {
        let member = member(files);
        let names = Names::of(&member);
        let from = names
            .files
            .iter()
            .find(|file| file.module == ["c"])
            .expect("a file c.rs");
        let path: Vec<String> = path.split("::").map(str::to_owned).collect();
        let found = match names.kind(from, 0, &path) {
            Some(Item::Type(file, number)) => names.files.get(file).map(|file| {
                let line = file.definitions.get(number).map(|(_, kind)| kind.line);
                (file.module.join("::"), line.unwrap_or(0))
            }),
            _ => None,
        };
        let found = found
            .as_ref()
            .map(|(module, line)| (module.as_str(), *line));
        assert_eq!(found, expect, "{files:?}");
    }

    const A: (&str, &str) = ("b/a.rs", "pub struct A;");
    const OTHER: (&str, &str) = ("d.rs", "pub struct A;");

    #[test]
    fn a_name_is_what_the_file_brings() {
        for text in [
            "use crate::b::a::A;",
            "use super::b::{x, a::{y, A}};",
            "use crate::b::a::*;",
            "use crate::b::a::A as B;\nuse crate::d::A;",
            "use crate::b::a;\nuse a::A as B;",
            "type B<T> = crate::b::a::A<T>;",
        ] {
            let path = if text.contains('B') { "B" } else { "A" };
            check(&[A, OTHER, ("c.rs", text)], path, Some(("b::a", 1)));
        }
        check(
            &[A, OTHER, ("c.rs", "use crate::b::a;")],
            "a::A",
            Some(("b::a", 1)),
        );
        check(
            &[A, OTHER, ("c.rs", "")],
            "crate::b::a::A",
            Some(("b::a", 1)),
        );
        check(
            &[A, OTHER, ("c.rs", "use crate::d::A;")],
            "A",
            Some(("d", 1)),
        );
        check(&[A, OTHER, ("c.rs", "struct A;")], "A", Some(("c", 1)));
        check(
            &[A, OTHER, ("c.rs", "use a::b::a::A;")],
            "A",
            Some(("b::a", 1)),
        );
        check(&[A, OTHER, ("c.rs", "")], "A", None);
        check(&[A, OTHER, ("c.rs", "use other::A;")], "A", None);
    }

    #[test]
    fn exports_are_followed() {
        let c = ("c.rs", "use crate::A;");
        for (lib, b) in [
            ("pub use b::a::A;", ""),
            ("pub use b::A;", "pub(crate) use a::A;"),
            ("pub(crate) use self::b::*;", "pub use self::a::*;"),
            ("pub use b::B as A;", "pub use a::A as B;"),
        ] {
            let files = [A, OTHER, c, ("lib.rs", lib), ("b/mod.rs", b)];
            check(&files, "A", Some(("b::a", 1)));
        }
        let ring = [
            ("lib.rs", "pub use b::*;"),
            ("b/mod.rs", "pub use super::*;\npub use crate::c::*;"),
            ("c.rs", "use crate::b::*;"),
        ];
        check(&ring, "A", None);
    }

    #[test]
    fn modules_in_braces_are_modules() {
        let c = "mod inner {\n    pub struct A;\n    pub mod more { pub use super::A; }\n}\n";
        check(&[("c.rs", c)], "inner::more::A", Some(("c", 2)));
        check(&[("c.rs", c)], "A", None);
        let tests = "#[cfg(test)]\nmod tests { pub struct A; }";
        check(&[("c.rs", tests)], "tests::A", None);
    }
}
