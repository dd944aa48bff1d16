//! Which modules of a crate import each other, or call each other's methods, and the circles that come of it.
//!
//! A module is a file; a module in braces belongs to the file that it stands in. File A has an edge to file B if the
//! source of A, tests left out, names something of B: in `use crate::…`, `use super::…`, `use self::…`, or by a path in
//! code that begins with `crate`, `super`, `self`, a child module, or an imported name. Rules:
//!
//! - The edge leads to the deepest module of the path that has a file. If the next name is one that this module itself
//!   imports or exports again (`pub use b::C`), the path is followed to where it comes from.
//! - Edges lead through a file that only declares, by `mod` and `use`, to what it contains: what it exports again by
//!   name or `*`, or else each of its children. So it is in no circle.
//! - `pub use` and its kin (`pub(crate) use`, …) are no edges of their file: they hand a name on.
//! - An edge of a file to itself counts for nothing.
//!
//! A circle is a strongly connected component of at least two files: each reaches each other one.
//!
//! `calls` says which method calls are edges; [`circles`] leaves them out, [`call_circles`] has both kinds.
//!
//! Deliberately absent: types that reach a file without being named there, and macros.

pub(crate) mod calls;

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{self, Crate, Kind, SourceFile};

/// The circles of a crate by imports and paths, the largest first, each with the names of its modules in order.
pub(crate) fn circles(member: &Crate) -> Vec<Vec<String>> {
    let graph = Graph::of(member);
    graph.circles(&graph.edges())
}

/// The circles of a crate by imports, paths and method calls, in the same form.
pub(crate) fn call_circles(member: &Crate) -> Vec<Vec<String>> {
    let graph = Graph::of(member);
    let mut edges = graph.edges();
    for (from, to) in calls::edges(member) {
        let ends = (graph.by_path.get(&from), graph.by_path.get(&to));
        if let (Some(from), Some(to)) = ends
            && from != to
            && let Some(targets) = edges.get_mut(*from)
        {
            targets.insert(*to);
        }
    }
    graph.circles(&edges)
}

/// What a `use` brings: under which name, from which path; `*` is the name of all.
#[derive(Debug, Clone)]
struct Import {
    name: String,
    path: Vec<String>,
    handed_on: bool,
}

struct Module {
    path: Vec<String>,
    imports: Vec<Import>,
    /// Names of items, modules in braces among them.
    items: BTreeSet<String>,
    /// Whether there is nothing but `mod` and `use`.
    only_declares: bool,
    /// Paths of code, from the root of the crate.
    paths: Vec<Vec<String>>,
}

struct Graph {
    modules: Vec<Module>,
    by_path: BTreeMap<Vec<String>, usize>,
}

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    File(usize),
    /// Out of the crate, or to nothing that is known.
    Elsewhere,
}

impl Graph {
    fn of(member: &Crate) -> Self {
        let mut modules: Vec<Module> = Vec::new();
        let mut by_path = BTreeMap::new();
        for file in member.source.iter().filter(|file| !file.is_test_file()) {
            let path = member.module(file);
            // Of a library and a program of the same crate, the library counts.
            by_path.entry(path.clone()).or_insert_with(|| {
                modules.push(read(file, path));
                modules.len() - 1
            });
        }
        Self { modules, by_path }
    }

    /// The circles that edges make, by the numbers of modules.
    fn circles(&self, edges: &[BTreeSet<usize>]) -> Vec<Vec<String>> {
        let mut found: Vec<Vec<String>> = components(edges)
            .into_iter()
            .filter(|component| component.len() > 1)
            .map(|component| {
                let mut names: Vec<String> = component
                    .into_iter()
                    .filter_map(|at| self.modules.get(at))
                    .map(|module| match module.path.join("::") {
                        name if name.is_empty() => "lib".to_owned(),
                        name => name,
                    })
                    .collect();
                names.sort_unstable();
                names
            })
            .collect();
        found.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        found
    }

    fn edges(&self) -> Vec<BTreeSet<usize>> {
        self.modules
            .iter()
            .enumerate()
            .map(|(from, module)| {
                let mut targets = BTreeSet::new();
                for import in module.imports.iter().filter(|import| !import.handed_on) {
                    let mut path = import.path.clone();
                    if import.name != "*" {
                        self.add(&path, &mut targets);
                    } else if let Some(at) = self.by_path.get(&path) {
                        targets.extend(self.through(*at, 0));
                    } else {
                        // `use super::Enumeration::*`
                        self.add(&path, &mut targets);
                        path.clear();
                    }
                }
                for path in &module.paths {
                    let first = path.get(module.path.len());
                    let relative = path.starts_with(&module.path);
                    let imported = first
                        .filter(|_| relative)
                        .and_then(|name| module.imported(name));
                    match imported {
                        Some(import) => {
                            let rest = path.get(module.path.len() + 1..).unwrap_or_default();
                            let followed = [import.path.as_slice(), rest].concat();
                            self.add(&followed, &mut targets);
                        }
                        None => self.add(path, &mut targets),
                    }
                }
                targets.remove(&from);
                targets
            })
            .collect()
    }

    fn add(&self, path: &[String], targets: &mut BTreeSet<usize>) {
        match self.resolve(path, 0) {
            // A module that is imported as a whole, and only declares, is followed where it is used.
            Target::File(at) if self.is_path_of(path, at) && self.declares(at) => {}
            Target::File(at) => targets.extend(self.through(at, 0)),
            Target::Elsewhere => {}
        }
    }

    fn is_path_of(&self, path: &[String], at: usize) -> bool {
        self.modules
            .get(at)
            .is_some_and(|module| module.path == path)
    }

    fn declares(&self, at: usize) -> bool {
        self.modules
            .get(at)
            .is_some_and(|module| module.only_declares)
    }

    /// A file, or what is in it if it only declares.
    fn through(&self, at: usize, depth: usize) -> Vec<usize> {
        if !self.declares(at) || depth > MAXIMUM_DEPTH {
            return vec![at];
        }
        let Some(module) = self.modules.get(at) else {
            return Vec::new();
        };
        self.modules
            .iter()
            .enumerate()
            .filter(|(_, child)| {
                child.path.len() == module.path.len() + 1 && child.path.starts_with(&module.path)
            })
            .flat_map(|(child, _)| self.through(child, depth + 1))
            .collect()
    }

    /// The file in which a path from the root of the crate ends.
    fn resolve(&self, path: &[String], depth: usize) -> Target {
        if depth > MAXIMUM_DEPTH {
            return Target::Elsewhere;
        }
        let deepest = (0..=path.len())
            .rev()
            .find_map(|length| Some((length, *self.by_path.get(path.get(..length)?)?)));
        let Some((length, at)) = deepest else {
            return Target::Elsewhere;
        };
        let (Some(module), Some(name)) = (self.modules.get(at), path.get(length)) else {
            return Target::File(at);
        };
        if module.items.contains(name) {
            return Target::File(at);
        }
        let rest = path.get(length + 1..).unwrap_or_default();
        if let Some(import) = module.imported(name) {
            let followed = [import.path.as_slice(), rest].concat();
            return match self.resolve(&followed, depth + 1) {
                Target::File(at) => Target::File(at),
                Target::Elsewhere => Target::Elsewhere,
            };
        }
        for glob in module.imports.iter().filter(|import| import.name == "*") {
            let Some(exporter) = self.by_path.get(&glob.path) else {
                continue;
            };
            let has = |module: &Module| {
                module.items.contains(name)
                    || module.imported(name).is_some()
                    || module.imports.iter().any(|import| import.name == "*")
            };
            if self.modules.get(*exporter).is_some_and(has) {
                let followed = [&glob.path, path.get(length..).unwrap_or_default()].concat();
                if let Target::File(at) = self.resolve(&followed, depth + 1) {
                    return Target::File(at);
                }
            }
        }
        Target::File(at)
    }
}

/// So many names may be handed on by so many modules; more is taken for a ring of exports.
const MAXIMUM_DEPTH: usize = 16;

impl Module {
    fn imported(&self, name: &str) -> Option<&Import> {
        self.imports.iter().find(|import| import.name == name)
    }
}

/// Reads what a file imports, declares and names.
fn read(file: &SourceFile, path: Vec<String>) -> Module {
    let mut module = Module {
        path,
        imports: Vec::new(),
        items: BTreeSet::new(),
        only_declares: true,
        paths: Vec::new(),
    };
    // Modules in braces that are open, with the place where each ends.
    let mut braces: Vec<(String, usize)> = Vec::new();
    let mut children: BTreeSet<String> = BTreeSet::new();
    let mut index = 0;
    while index < file.tokens.len() {
        if file.is_test(index) {
            index += 1;
            continue;
        }
        braces.retain(|(_, end)| index < *end);
        let mut here = module.path.clone();
        here.extend(braces.iter().map(|(name, _)| name.clone()));
        match file.at(index) {
            "#" => {
                let open = index + 1 + usize::from(file.at(index + 1) == "!");
                index = file.behind_bracket(open);
                continue;
            }
            "mod" if file.at(index + 2) == ";" => {
                children.insert(file.at(index + 1).to_owned());
                index += 3;
                continue;
            }
            "mod" if file.at(index + 2) == "{" => {
                let name = file.at(index + 1).to_owned();
                module.items.insert(name.clone());
                module.only_declares = false;
                braces.push((name, file.behind_bracket(index + 2)));
                index += 3;
                continue;
            }
            "use" => {
                let handed_on = index > 0 && matches!(file.at(index - 1), "pub" | ")");
                let (found, end) = source::imports(file, index);
                for (name, path) in found {
                    if let Some(path) = from_root(&path, &here, &children) {
                        module.imports.push(Import {
                            name,
                            path,
                            handed_on,
                        });
                    }
                }
                index = end;
                continue;
            }
            "pub" | "(" | ")" | "crate" | "super" | "in" if module.only_declares => {
                // `pub(crate) use`, `pub mod`: not yet code. A path is, below.
            }
            ";" | "}" => {}
            _ => module.only_declares = false,
        }
        if matches!(
            file.at(index),
            "struct" | "enum" | "union" | "trait" | "type" | "fn" | "const" | "static"
        ) && file.kind(index + 1) == Some(Kind::Word)
        {
            module.items.insert(file.at(index + 1).to_owned());
        }
        let begins_path = file.kind(index) == Some(Kind::Word)
            && file.at(index + 1) == "::"
            && (index == 0 || !matches!(file.at(index - 1), "::" | "."));
        if begins_path {
            let mut path = vec![file.at(index).to_owned()];
            while file.at(index + 1) == "::" && file.kind(index + 2) == Some(Kind::Word) {
                path.push(file.at(index + 2).to_owned());
                index += 2;
            }
            let first = path.first().map_or("", String::as_str);
            let known = matches!(first, "crate" | "super" | "self");
            if known {
                module.paths.extend(from_root(&path, &here, &children));
            } else if first != "Self" {
                // Of a child or an imported name, as `edges` finds out; of anything else, it leads to this file.
                let mut absolute = module.path.clone();
                absolute.extend(path);
                module.paths.push(absolute);
            }
            if known {
                module.only_declares = false;
            }
        }
        index += 1;
    }
    module
}

/// A path of a `use`, from the root of the crate; `None` if it leads to another crate.
fn from_root(path: &[String], here: &[String], children: &BTreeSet<String>) -> Option<Vec<String>> {
    let mut base: Vec<String> = here.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = path.get(1..)?;
        }
        "self" => rest = path.get(1..)?,
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop();
                rest = rest.get(1..)?;
            }
        }
        name if children.contains(name) => {}
        _ => return None,
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// Strongly connected components, by Tarjan's algorithm.
fn components(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    struct State<'a> {
        edges: &'a [BTreeSet<usize>],
        next: usize,
        /// Number and lowest number that is reached, by vertex.
        seen: BTreeMap<usize, (usize, usize)>,
        stack: Vec<usize>,
        found: Vec<Vec<usize>>,
    }

    fn visit(state: &mut State<'_>, at: usize) -> usize {
        let number = state.next;
        state.next += 1;
        state.seen.insert(at, (number, number));
        state.stack.push(at);
        let mut lowest = number;
        for target in state.edges.get(at).into_iter().flatten() {
            match state.seen.get(target) {
                None => lowest = lowest.min(visit(state, *target)),
                Some((number, _)) if state.stack.contains(target) => lowest = lowest.min(*number),
                Some(_) => {}
            }
        }
        state.seen.insert(at, (number, lowest));
        if lowest == number {
            let from = state.stack.iter().position(|other| *other == at);
            let component = state.stack.split_off(from.unwrap_or(0));
            state.found.push(component);
        }
        lowest
    }

    let mut state = State {
        edges,
        next: 0,
        seen: BTreeMap::new(),
        stack: Vec::new(),
        found: Vec::new(),
    };
    for at in 0..edges.len() {
        if !state.seen.contains_key(&at) {
            visit(&mut state, at);
        }
    }
    state.found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::member;

    /// The circles of a crate, each as its names between spaces.
    fn check(files: &[(&str, &str)], expect: &[&str]) {
        let found: Vec<String> = circles(&member(files))
            .iter()
            .map(|circle| circle.join(" "))
            .collect();
        assert_eq!(found, expect, "{files:?}");
    }

    #[test]
    fn imports_and_paths_are_edges() {
        check(
            &[
                ("lib.rs", "mod b;\nmod c;\nmod d;"),
                ("b.rs", "use crate::{c::{C, E}, x};\nfn f() {}"),
                ("c.rs", "fn f() { super::d::g() }"),
                ("d.rs", "struct D(crate::b::B);"),
            ],
            &["b c d"],
        );
    }

    #[test]
    fn a_chain_is_no_circle() {
        check(
            &[
                ("lib.rs", "mod b;\nmod c;\nfn a() { b::f() }"),
                ("b.rs", "use crate::c;\nfn f() { c::f() }"),
                ("c.rs", "fn f() {}"),
            ],
            &[],
        );
    }

    #[test]
    fn a_parent_with_code_and_its_child_may_be_a_circle() {
        check(
            &[
                ("lib.rs", "mod b;"),
                ("b/mod.rs", "mod c;\nstruct B;\nfn f() { c::g() }"),
                ("b/c.rs", "use super::B;\nfn g() {}"),
            ],
            &["b b::c"],
        );
    }

    #[test]
    fn names_are_followed_to_where_they_come_from() {
        // `lib.rs` and `b` only declare: they are in no circle, and edges lead through them.
        check(
            &[
                ("lib.rs", "mod b;\nmod e;\npub use b::C;"),
                (
                    "b/mod.rs",
                    "mod c;\nmod d;\npub(crate) use c::C;\npub use self::d::*;",
                ),
                ("b/c.rs", "use crate::e::E;\npub struct C;"),
                ("b/d.rs", "pub struct D;"),
                ("e.rs", "use crate::C;\nuse crate::b::D;\npub struct E;"),
            ],
            &["b::c e"],
        );
        check(
            &[
                ("lib.rs", "mod b;\nmod e;"),
                ("b/mod.rs", "mod d;\npub use d::*;"),
                ("b/d.rs", "use crate::e::E;\npub struct D;"),
                ("e.rs", "use crate::b;\npub struct E(b::D);"),
            ],
            &["b::d e"],
        );
    }

    #[test]
    fn exporting_again_is_no_edge() {
        check(
            &[
                ("lib.rs", "mod b;\npub use b::B;\npub struct A;"),
                ("b.rs", "use crate::A;\npub struct B;"),
            ],
            &[],
        );
        check(
            &[
                ("lib.rs", "mod b;\nuse b::B;\npub struct A;"),
                ("b.rs", "use crate::A;\npub struct B;"),
            ],
            &["b lib"],
        );
    }

    #[test]
    fn tests_make_no_circles() {
        check(
            &[
                ("lib.rs", "mod b;\nmod c;"),
                ("b.rs", "use crate::c::C;\nstruct B;"),
                (
                    "c.rs",
                    "struct C;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}",
                ),
            ],
            &[],
        );
    }

    #[test]
    fn modules_in_braces_belong_to_their_file() {
        check(
            &[
                ("lib.rs", "mod b;\nmod c;"),
                (
                    "b.rs",
                    "mod inner {\n    use super::B;\n    use super::super::c::C;\n}\nstruct B;",
                ),
                ("c.rs", "use crate::b::inner::X;\nstruct C;"),
            ],
            &["b c"],
        );
    }

    #[test]
    fn calls_and_imports_together_make_a_circle() {
        let files = member(&[
            ("lib.rs", "mod b;\nmod c;\nmod d;"),
            ("b.rs", "pub struct B;\nimpl B { fn e(&self) { self.f() } }"),
            (
                "c.rs",
                "use crate::d::D;\nimpl crate::b::B { fn f(&self) {} }",
            ),
            ("d.rs", "use crate::b::B;\npub struct D;"),
        ]);
        assert_eq!(circles(&files), [] as [Vec<String>; 0]);
        assert_eq!(call_circles(&files), [["b", "c", "d"]]);
    }
}
