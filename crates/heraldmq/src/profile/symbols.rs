//! Names of functions by the build identifiers of the files that a profile has addresses of.
//!
//! Invariant: a file whose build identifier is another one is never used: its names would be wrong.

use std::fs::File;
use std::path::{Path, PathBuf};

use addr2line::{Loader, demangle_auto};
use admin::api::{CpuProfile, ProfiledModule};
use object::read::ReadCache;
use object::{Object as _, ObjectSection as _};

use crate::failure::Failure;

/// A function, and where in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Named {
    /// Its name, or else the address in its file.
    pub(super) function: String,
    /// The source file; empty if it is not known.
    pub(super) file: String,
    /// The line in it, from 1 on; 0: not known.
    pub(super) line: i64,
}

impl Named {
    /// Without a place in a source file.
    pub(super) fn of(function: &str) -> Self {
        Self {
            function: function.to_owned(),
            file: String::new(),
            line: 0,
        }
    }
}

/// Where names are looked for, of each module of a profile.
pub(super) struct Symbols {
    loaders: Vec<Option<Loader>>,
}

impl Symbols {
    /// Those of the modules of a profile. `given`: the file that has those of the program.
    ///
    /// # Errors
    /// Nothing has the symbols of the program, or `given` has not.
    pub(super) fn find(profile: &CpuProfile, given: Option<&Path>) -> Result<Self, Failure> {
        let loaders = profile.modules.iter().map(|module| {
            let file = match (module.is_program, given) {
                (true, Some(given)) => {
                    check(given, module)?;
                    given.to_owned()
                }
                (is_program, _) => match file_of(module) {
                    Some(found) => found,
                    None if is_program => return Err(missing(module)),
                    // Libraries are named as a whole then.
                    None => return Ok(None),
                },
            };
            let loaded = Loader::new(&file);
            let loaded =
                loaded.map_err(|error| Failure::Runtime(format!("{}: {error}", file.display())));
            loaded.map(Some)
        });
        let loaders = loaders.collect::<Result<_, Failure>>()?;
        Ok(Self { loaders })
    }

    /// The functions at a place, the innermost first: more than one if some were inlined there.
    pub(super) fn at(
        &self,
        profile: &CpuProfile,
        module: Option<usize>,
        address: u64,
    ) -> Vec<Named> {
        let loader = module.and_then(|module| self.loaders.get(module)?.as_ref());
        let found = loader.map(|loader| functions(loader, address));
        let found = found.unwrap_or_default();
        if !found.is_empty() {
            return found;
        }
        vec![Named::of(&as_a_whole(profile, module))]
    }
}

/// A place of a profile: the index of its module, and the address. `None`: it is none.
pub(super) fn place(text: &str) -> Option<(Option<usize>, u64)> {
    let (module, address) = text.split_once(':')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    match module {
        "" => Some((None, address)),
        module => Some((Some(module.parse().ok()?), address)),
    }
}

/// What stands for a function that is not known: the name of its file.
pub(super) fn as_a_whole(profile: &CpuProfile, module: Option<usize>) -> String {
    let module = module.and_then(|module| profile.modules.get(module));
    let name = module.map_or("unknown", |module| {
        module.path.rsplit('/').next().unwrap_or(&module.path)
    });
    format!("[{name}]")
}

/// The file of this machine that has the symbols of a module.
pub(super) fn file_of(module: &ProfiledModule) -> Option<PathBuf> {
    let mut candidates = candidates(module).into_iter();
    candidates.find(|file| has_symbols_of(file, module))
}

fn functions(loader: &Loader, address: u64) -> Vec<Named> {
    let symbol = || {
        let name = loader.find_symbol(address)?;
        Some(demangle_auto(name.into(), None).into_owned())
    };
    let mut found = Vec::new();
    if let Ok(mut frames) = loader.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref();
            let name = name.and_then(|name| Some(name.demangle().ok()?.into_owned()));
            let place = frame.location;
            // The outermost is the one that the symbol names.
            if let Some(function) = name.or_else(symbol) {
                found.push(Named {
                    function,
                    file: place
                        .as_ref()
                        .and_then(|place| place.file)
                        .unwrap_or_default()
                        .to_owned(),
                    line: place.and_then(|place| place.line).unwrap_or(0).into(),
                });
            }
        }
    }
    if found.is_empty() {
        found.extend(symbol().map(|name| Named::of(&name)));
    }
    found
}

/// Files that may have the symbols of a module, the best first.
fn candidates(module: &ProfiledModule) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if module.is_program {
        files.push(PathBuf::from("/proc/self/exe"));
        if let Ok(own) = std::env::current_exe() {
            files.push(own.with_file_name("heraldmq.debug"));
        }
        files.push(Path::new(&module.path).with_file_name("heraldmq.debug"));
    }
    if let Some((first, rest)) = module
        .build_id
        .as_ref()
        .and_then(|id| id.split_at_checked(2))
    {
        files.push(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug").into());
    }
    files.push(PathBuf::from(&module.path));
    files
}

fn has_symbols_of(file: &Path, module: &ProfiledModule) -> bool {
    read(file).is_some_and(|read| {
        let is_same = read.build_id.is_some() && read.build_id == module.build_id;
        is_same && (read.has_symbols || !module.is_program)
    })
}

/// What tells whether a file is of use.
struct Read {
    build_id: Option<String>,
    has_symbols: bool,
}

/// `None`: it is not there, or no ELF file.
fn read(file: &Path) -> Option<Read> {
    let parts = ReadCache::new(File::open(file).ok()?);
    let file = object::File::parse(&parts).ok()?;
    let build_id = file.build_id().ok().flatten();
    let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let has = |name| file.section_by_name(name).is_some_and(|it| it.size() > 0);
    Some(Read {
        build_id: build_id.map(hexadecimal),
        has_symbols: has(".symtab"),
    })
}

/// Whether the file that somebody names has the symbols of the program.
fn check(given: &Path, module: &ProfiledModule) -> Result<(), Failure> {
    let file = given.display();
    let Some(read) = read(given) else {
        let why = format!("{file} is not there, or is no ELF file");
        return Err(Failure::Usage(why));
    };
    let or_none = |id: &Option<String>| id.clone().unwrap_or_else(|| "without identifier".into());
    if read.build_id.is_none() || read.build_id != module.build_id {
        let (its, wanted) = (or_none(&read.build_id), or_none(&module.build_id));
        let why = format!("{file} is of the build {its}, and the node runs the build {wanted}");
        return Err(Failure::Usage(why));
    }
    match read.has_symbols {
        true => Ok(()),
        false => Err(Failure::Usage(format!("{file} has no symbols"))),
    }
}

fn missing(module: &ProfiledModule) -> Failure {
    let Some(id) = &module.build_id else {
        let why = "the node's program has no build identifier, so that its symbols cannot be told from others; --json prints the addresses";
        return Failure::Runtime(why.into());
    };
    Failure::Runtime(format!(
        "nothing here has the symbols of the build {id}, which the node runs: install heraldmq-dbgsym of its version, put its \
         heraldmq.debug beside this program, or name the file with --symbols; --json prints the addresses"
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use admin::api::Amount;
    use admin::cluster::NodeId;

    use super::*;

    /// A profile of one module with these places.
    pub(crate) fn profile_of(module: ProfiledModule, places: Vec<String>) -> CpuProfile {
        CpuProfile {
            node: NodeId(7),
            node_name: "a".into(),
            version: "1".into(),
            hertz: Amount(199),
            lasted_ms: Amount(1_000),
            cpu_ms: Amount(0),
            samples: Amount(0),
            lost: Amount(0),
            threads: Vec::new(),
            modules: vec![module],
            places,
            functions: None,
            stacks: Vec::new(),
        }
    }

    pub(crate) fn own() -> ProfiledModule {
        let path = std::env::current_exe().unwrap();
        ProfiledModule {
            build_id: read(&path).unwrap().build_id,
            path: path.to_str().unwrap().to_owned(),
            is_program: true,
        }
    }

    #[test]
    fn the_own_program_has_its_symbols_and_no_other_build_has() {
        let module = own();
        assert!(module.build_id.is_some());
        assert!(has_symbols_of(Path::new(&module.path), &module));
        let other = ProfiledModule {
            build_id: Some("00ff".into()),
            ..module.clone()
        };
        assert!(!has_symbols_of(Path::new(&other.path), &other));
        let refused = check(Path::new(&other.path), &other);
        let wanted = "runs the build 00ff";
        assert!(matches!(refused, Err(Failure::Usage(why)) if why.contains(wanted)));
        assert!(matches!(
            check(Path::new("/none"), &module),
            Err(Failure::Usage(_))
        ));
        let unknown = ProfiledModule {
            build_id: None,
            ..module
        };
        assert!(!has_symbols_of(Path::new(&unknown.path), &unknown));
    }

    #[test]
    fn candidates_are_named_by_the_build_identifier() {
        let module = ProfiledModule {
            path: "/opt/heraldmq/heraldmq".into(),
            build_id: Some("abcdef".into()),
            is_program: true,
        };
        let files = candidates(&module);
        for file in [
            "/opt/heraldmq/heraldmq.debug",
            "/usr/lib/debug/.build-id/ab/cdef.debug",
            "/opt/heraldmq/heraldmq",
        ] {
            assert!(files.contains(&PathBuf::from(file)), "{file}");
        }
    }
}
