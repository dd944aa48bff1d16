//! Types and functions of a file: what is declared, with fields, variants and methods.

use std::collections::BTreeSet;
use std::ops::Range;

use super::file::SourceFile;
use super::lexer::Kind;

/// A struct or an enum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) shape: Shape,
}

/// What a type is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Fields with names.
    Struct(Vec<Field>),
    /// Fields without names, or none.
    Tuple,
    /// The names of the variants.
    Enum(Vec<String>),
}

/// A field with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// The tokens of its type.
    pub(crate) kind: Vec<String>,
    pub(crate) line: usize,
}

/// An `impl` block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Implementation {
    /// The type as it is written, without its parameters: `a::A`.
    pub(crate) path: Vec<String>,
    /// The trait, written so.
    pub(crate) of_trait: Option<Vec<String>>,
    /// What it defines by `fn`; what is for tests only is left out.
    pub(crate) methods: Vec<Method>,
    /// The tokens between its brackets.
    pub(crate) body: Range<usize>,
}

/// A trait, with the methods that it provides: those with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trait {
    pub(crate) name: String,
    pub(crate) methods: Vec<Method>,
    /// The tokens between its brackets.
    pub(crate) body: Range<usize>,
}

/// A function that is in no `impl` block and no trait, or within the body of another function.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// Its first parameter, if that is a reference to a type with a name.
    pub(crate) receiver: Option<Receiver>,
    /// The tokens between its brackets.
    pub(crate) body: Range<usize>,
}

/// A parameter `name: &path`, `name: &mut path`, or the same of a smart pointer to it: `name: &Arc<path>`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Receiver {
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
}

/// A reference to one of these is one to what it points to.
const POINTERS: [&str; 4] = ["Arc", "Box", "Pin", "Rc"];

/// A method of an `impl` block, or a function of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) line: usize,
}

/// The structs and enums of a file, without those for tests only, with the index of the first token of each.
pub(crate) fn definitions(file: &SourceFile) -> Vec<(usize, Definition)> {
    file.code()
        .filter_map(|index| Some((index, definition(file, index)?)))
        .collect()
}

/// The `impl` blocks of a file, without those for tests only.
pub(crate) fn implementations(file: &SourceFile) -> Vec<Implementation> {
    file.code()
        .filter_map(|index| implementation(file, index))
        .collect()
}

/// The traits of a file, without those for tests only.
pub(crate) fn traits(file: &SourceFile) -> Vec<Trait> {
    file.code()
        .filter(|index| file.at(*index) == "trait" && file.kind(index + 1) == Some(Kind::Word))
        .map(|index| {
            let open = body_of(file, index + 2);
            let end = file.behind_bracket(open);
            let provides = |at: usize| file.at(behind_signature(file, at)) == "{";
            Trait {
                name: file.at(index + 1).to_owned(),
                methods: methods(file, open..end)
                    .into_iter()
                    .filter(|(at, _)| provides(*at))
                    .map(|(_, method)| method)
                    .collect(),
                body: open + 1..end.saturating_sub(1).max(open + 1),
            }
        })
        .collect()
}

/// The functions of a file, without those for tests only. `blocks` and `traits` are those of the file.
pub(crate) fn functions(
    file: &SourceFile,
    blocks: &[Implementation],
    traits: &[Trait],
) -> Vec<Function> {
    let bodies = blocks
        .iter()
        .map(|block| &block.body)
        .chain(traits.iter().map(|kind| &kind.body));
    let of_types: BTreeSet<usize> = bodies
        .flat_map(|body| methods(file, body.start.saturating_sub(1)..body.end + 1))
        .map(|(at, _)| at)
        .collect();
    file.code()
        .filter(|index| file.at(*index) == "fn" && file.kind(index + 1) == Some(Kind::Word))
        .filter(|index| !of_types.contains(index))
        .map(|index| {
            let open = behind_signature(file, index);
            let end = if file.at(open) == "{" {
                file.behind_bracket(open).saturating_sub(1)
            } else {
                open
            };
            Function {
                name: file.at(index + 1).to_owned(),
                line: file.line(index),
                receiver: receiver(file, index + 2),
                body: open + 1..end.max(open + 1),
            }
        })
        .collect()
}

/// The first parameter of a function, of whose name the token before this index is.
fn receiver(file: &SourceFile, index: usize) -> Option<Receiver> {
    let mut index = index;
    let mut parameters = BTreeSet::new();
    if file.at(index) == "<" {
        let end = behind_angles(file, index);
        for at in index..end {
            if matches!(file.at(at), "<" | ",") && file.kind(at + 1) == Some(Kind::Word) {
                parameters.insert(file.at(at + 1));
            }
        }
        index = end;
    }
    index = file.behind_attributes(index + 1);
    index += usize::from(file.at(index) == "mut");
    if file.kind(index) != Some(Kind::Word) || !file.begins(index + 1, &[":", "&"]) {
        return None;
    }
    let name = file.at(index).to_owned();
    let mut path = referred(file, index + 2);
    while let [.., last] = path.0.as_slice()
        && POINTERS.contains(&last.as_str())
        && file.at(path.1) == "<"
    {
        path = referred(file, path.1 + 1);
    }
    let is_type = path
        .0
        .first()
        .is_some_and(|first| !parameters.contains(first.as_str()));
    let is_named = !matches!(
        path.0.first().map(String::as_str),
        Some("impl" | "dyn" | "fn")
    );
    (is_type && is_named).then_some(Receiver { name, path: path.0 })
}

/// The path that begins at this index, behind `&`, a lifetime and `mut`; and the index behind it.
fn referred(file: &SourceFile, mut index: usize) -> (Vec<String>, usize) {
    while matches!(file.at(index), "&" | "mut") || file.kind(index) == Some(Kind::Lifetime) {
        index += 1;
    }
    let mut path = Vec::new();
    while file.kind(index) == Some(Kind::Word) {
        path.push(file.at(index).to_owned());
        index += 1;
        if file.at(index) != "::" {
            break;
        }
        index += 1;
    }
    (path, index)
}

/// Behind the `>` that closes the `<` at this index.
pub(crate) fn behind_angles(file: &SourceFile, mut index: usize) -> usize {
    let mut angles = 0_usize;
    while index < file.tokens.len() {
        match file.at(index) {
            "<" => angles += 1,
            ">" => {
                angles = angles.saturating_sub(1);
                if angles == 0 {
                    return index + 1;
                }
            }
            "(" | "[" | "{" => {
                index = file.behind_bracket(index);
                continue;
            }
            ")" | "]" | "}" | ";" => return index,
            _ => {}
        }
        index += 1;
    }
    index
}

/// The bracket or semicolon behind the signature whose `fn` is at this index.
fn behind_signature(file: &SourceFile, index: usize) -> usize {
    let mut at = index + 2;
    if file.at(at) == "<" {
        at = behind_angles(file, at);
    }
    at = file.behind_bracket(at);
    while at < file.tokens.len() && !matches!(file.at(at), "{" | ";") {
        at = match file.at(at) {
            "(" | "[" => file.behind_bracket(at),
            _ => at + 1,
        };
    }
    at
}

/// The methods between the brackets of these tokens, with where their `fn` is.
fn methods(file: &SourceFile, block: Range<usize>) -> Vec<(usize, Method)> {
    let mut depth = 0_usize;
    let mut found = Vec::new();
    for inner in block {
        match file.at(inner) {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            "fn" if depth == 1
                && file.kind(inner + 1) == Some(Kind::Word)
                && !file.is_test(inner) =>
            {
                let method = Method {
                    name: file.at(inner + 1).to_owned(),
                    line: file.line(inner),
                };
                found.push((inner, method));
            }
            _ => {}
        }
    }
    found
}

/// Names that a file declares, with their lines: types, traits, functions, constants, modules, fields and variants.
/// Those of tests are among them.
pub(crate) fn declared_names(file: &SourceFile) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for index in 0..file.tokens.len() {
        let declares = matches!(
            file.at(index),
            "struct" | "enum" | "union" | "trait" | "type" | "fn" | "mod" | "const" | "static"
        );
        // `*const T` and `const { … }` declare nothing, `static mut A` and `const fn a` something later.
        if declares
            && file.kind(index + 1) == Some(Kind::Word)
            && !matches!(file.at(index + 1), "mut" | "fn" | "unsafe" | "async")
            && file.at(index.wrapping_sub(1)) != "*"
        {
            found.push((file.at(index + 1).to_owned(), file.line(index + 1)));
        }
        let Some(definition) = definition(file, index) else {
            continue;
        };
        match definition.shape {
            Shape::Struct(fields) => {
                found.extend(fields.into_iter().map(|field| (field.name, field.line)));
            }
            Shape::Tuple => {}
            Shape::Enum(_) => found.extend(variants(file, body_of(file, index + 2))),
        }
    }
    found
}

fn definition(file: &SourceFile, index: usize) -> Option<Definition> {
    let keyword = file.at(index);
    if !matches!(keyword, "struct" | "enum") || file.kind(index + 1) != Some(Kind::Word) {
        return None;
    }
    let body = body_of(file, index + 2);
    let shape = match (keyword, file.at(body)) {
        ("enum", _) => Shape::Enum(
            variants(file, body)
                .into_iter()
                .filter(|(name, _)| name.starts_with(char::is_uppercase))
                .map(|(name, _)| name)
                .collect(),
        ),
        (_, "{") => Shape::Struct(fields(file, body)),
        _ => Shape::Tuple,
    };
    Some(Definition {
        name: file.at(index + 1).to_owned(),
        line: file.line(index),
        shape,
    })
}

/// The bracket or semicolon that ends the head of an item: behind generic parameters and bounds.
fn body_of(file: &SourceFile, mut index: usize) -> usize {
    let mut angles = 0_usize;
    while index < file.tokens.len() {
        match file.at(index) {
            "<" => angles += 1,
            ">" => angles = angles.saturating_sub(1),
            "{" | ";" => return index,
            "(" if angles == 0 => return index,
            "(" | "[" => {
                index = file.behind_bracket(index);
                continue;
            }
            _ => {}
        }
        index += 1;
    }
    index
}

/// Behind the type that begins at this index: at the comma or bracket that ends it.
fn behind_type(file: &SourceFile, mut index: usize) -> usize {
    let mut angles = 0_usize;
    while index < file.tokens.len() {
        match file.at(index) {
            "<" => angles += 1,
            ">" => angles = angles.saturating_sub(1),
            "(" | "[" | "{" => {
                index = file.behind_bracket(index);
                continue;
            }
            ")" | "]" | "}" => return index,
            "," if angles == 0 => return index,
            _ => {}
        }
        index += 1;
    }
    index
}

/// The named fields between the brackets that open at this index.
fn fields(file: &SourceFile, open: usize) -> Vec<Field> {
    let end = file.behind_bracket(open).saturating_sub(1);
    let mut found = Vec::new();
    let mut index = open + 1;
    while index < end {
        index = file.behind_visibility(file.behind_attributes(index));
        let from = index + 2;
        if index >= end || file.at(index + 1) != ":" {
            break;
        }
        let behind = behind_type(file, from);
        found.push(Field {
            name: file.at(index).to_owned(),
            kind: (from..behind).map(|at| file.at(at).to_owned()).collect(),
            line: file.line(index),
        });
        index = behind + 1;
    }
    found
}

/// The names of variants, each followed by those of its fields, with their lines.
fn variants(file: &SourceFile, open: usize) -> Vec<(String, usize)> {
    let end = file.behind_bracket(open).saturating_sub(1);
    let mut found = Vec::new();
    let mut index = open + 1;
    while index < end {
        index = file.behind_attributes(index);
        if index >= end {
            break;
        }
        found.push((file.at(index).to_owned(), file.line(index)));
        if file.at(index + 1) == "{" {
            let inner = fields(file, index + 1);
            found.extend(inner.into_iter().map(|field| (field.name, field.line)));
        }
        index = behind_type(file, index + 1) + 1;
    }
    found
}

fn implementation(file: &SourceFile, index: usize) -> Option<Implementation> {
    // `impl Trait` in a type is no block.
    let begins = index == 0
        || matches!(
            file.at(index - 1),
            "}" | ";" | "]" | "{" | "unsafe" | "default"
        );
    if file.at(index) != "impl" || !begins {
        return None;
    }
    let mut at = index + 1;
    let mut angles = 0_usize;
    let (mut path, mut of_trait, mut in_bounds) = (Vec::new(), None, false);
    while at < file.tokens.len() && file.at(at) != "{" {
        match file.at(at) {
            "<" => angles += 1,
            ">" => angles = angles.saturating_sub(1),
            "(" | "[" => {
                at = file.behind_bracket(at);
                continue;
            }
            "for" if angles == 0 && !in_bounds => of_trait = Some(std::mem::take(&mut path)),
            "where" if angles == 0 => in_bounds = true,
            word if angles == 0 && !in_bounds && file.kind(at) == Some(Kind::Word) => {
                if file.at(at - 1) != "::" {
                    path.clear();
                }
                path.push(word.to_owned());
            }
            _ => {}
        }
        at += 1;
    }
    let end = file.behind_bracket(at);
    Some(Implementation {
        path,
        of_trait,
        methods: methods(file, at..end)
            .into_iter()
            .map(|(_, method)| method)
            .collect(),
        body: at + 1..end.saturating_sub(1).max(at + 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> SourceFile {
        SourceFile::new("crates/a/src/b.rs", text.to_owned())
    }

    #[test]
    fn fields_are_read_with_their_types() {
        let file = file(
            "pub struct A<T: X<u8>> where T: Y {\n    /// B.\n    #[c(d)]\n    pub(crate) e: Option<HashMap<u8, (u8, T)>>,\n    f: u64,\n    g: fn(u8) -> bool,\n}\nstruct H(u64);\nstruct I;",
        );
        let found = definitions(&file);
        let shapes: Vec<&Shape> = found
            .iter()
            .map(|(_, definition)| &definition.shape)
            .collect();
        let [Shape::Struct(fields), Shape::Tuple, Shape::Tuple] = shapes.as_slice() else {
            panic!("{shapes:?}");
        };
        let fields: Vec<String> = fields
            .iter()
            .map(|field| format!("{} {} {}", field.line, field.name, field.kind.concat()))
            .collect();
        assert_eq!(
            fields,
            [
                "4 e Option<HashMap<u8,(u8,T)>>",
                "5 f u64",
                "6 g fn(u8)->bool"
            ]
        );
    }

    #[test]
    fn variants_are_told_from_their_fields() {
        let file = file(
            "enum A<T> {\n    B,\n    #[c]\n    D(Vec<u8>, T),\n    E { f: u8, g: T },\n    H = 3,\n}",
        );
        let expect = ["B", "D", "E", "H"].map(str::to_owned).into();
        let shapes: Vec<Shape> = definitions(&file)
            .into_iter()
            .map(|(_, definition)| definition.shape)
            .collect();
        assert_eq!(shapes, [Shape::Enum(expect)]);
        let names: Vec<String> = declared_names(&file)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["A", "B", "D", "E", "f", "g", "H"]);
    }

    #[test]
    fn methods_are_found_by_type() {
        let file = file(
            "impl<T> A<T> where T: X {\n    fn b(c: impl Y) { fn inner() {} }\n    const fn d() -> fn(u8) { e }\n    #[cfg(test)]\n    fn f() {}\n}\nimpl<T> Z<u8> for a::A<T> {\n    fn g() {}\n}\nfn h() -> impl Y {}",
        );
        let found: Vec<(String, Option<String>, Vec<String>)> = implementations(&file)
            .into_iter()
            .map(|found| {
                let methods = found.methods.into_iter().map(|method| method.name);
                let of_trait = found.of_trait.map(|path| path.join("::"));
                (found.path.join("::"), of_trait, methods.collect())
            })
            .collect();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let expect = [
            ("A".to_owned(), None, names(&["b", "d"])),
            ("a::A".to_owned(), Some("Z".to_owned()), names(&["g"])),
        ];
        assert_eq!(found, expect);
    }

    #[test]
    fn traits_have_the_methods_that_they_provide() {
        let file = file(
            "trait A: B<u8> where u8: C {\n    fn d(&self) -> [u8; 3];\n    fn e<F: Fn(u8) -> u8>(&self, f: F) where F: G { h() }\n}\n",
        );
        let found: Vec<(String, Vec<String>)> = traits(&file)
            .into_iter()
            .map(|kind| {
                let methods = kind.methods.into_iter().map(|method| method.name);
                (kind.name, methods.collect())
            })
            .collect();
        assert_eq!(found, [("A".to_owned(), vec!["e".to_owned()])]);
    }

    #[test]
    fn functions_have_a_receiver_if_their_first_parameter_refers_to_a_type() {
        let file = file(
            "fn a(b: &C) {}\nfn d<R: X<u8>>(mut e: &'a mut f::C<R>, g: &H) -> u8 {}\nfn i(j: &Arc<Box<C>>) { fn k(l: &C) {} }\n\
             fn m<C>(n: &C) {}\nfn o(p: &impl C) {}\nfn q(r: C) {}\nfn s() {}\nimpl T { fn u(v: &C) {} }\ntrait W { fn x(y: &C) {} }\n",
        );
        let found: Vec<String> = functions(&file, &implementations(&file), &traits(&file))
            .into_iter()
            .map(|function| {
                let receiver = function.receiver.map_or(String::new(), |receiver| {
                    format!(" {}: {}", receiver.name, receiver.path.join("::"))
                });
                format!("{}{receiver}", function.name)
            })
            .collect();
        assert_eq!(
            found,
            [
                "a b: C",
                "d e: f::C",
                "i j: C",
                "k l: C",
                "m",
                "o",
                "q",
                "s"
            ]
        );
    }

    #[test]
    fn names_are_those_of_declarations() {
        let file = file(
            "mod a;\nconst B: *const u8 = c;\nstatic mut D: u8 = 0;\nconst fn e() { let f = g; }\ntrait H { type I; }",
        );
        let names: Vec<String> = declared_names(&file)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["a", "B", "e", "H", "I"]);
    }
}
