//! Names of functions by symbol tables alone, as a node gives them to the dashboard.
//!
//! A symbol table is read in parts, and takes some MB while it is read. Debugging information, which also names functions that were
//! inlined, takes many times that: a node does not read it, and the command does (`symbols.rs`).

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use addr2line::demangle_auto;
use admin::api::CpuProfile;
use object::read::ReadCache;
use object::{Object as _, ObjectSymbol as _, SymbolKind};

use super::symbols::{as_a_whole, file_of, place};

/// The function at each place of a profile, in their order; the name of the file where no function is known. `None`: nothing on this
/// machine has the symbols of the program, or the profile has a place that is none.
pub(crate) fn functions(profile: &CpuProfile) -> Option<Vec<String>> {
    let places = profile.places.iter().map(|text| place(text));
    let places: Vec<(Option<usize>, u64)> = places.collect::<Option<_>>()?;
    let mut names = Vec::new();
    for (index, module) in profile.modules.iter().enumerate() {
        let wanted = places.iter().filter(|(of, _)| *of == Some(index));
        let wanted = wanted.map(|(_, address)| *address);
        names.push(match file_of(module) {
            Some(file) => in_file(&file, wanted)?,
            None if module.is_program => return None,
            // Libraries are named as a whole then.
            None => HashMap::new(),
        });
    }
    let named = places.into_iter().map(|(module, address)| {
        let name = module.and_then(|module| names.get(module)?.get(&address));
        name.cloned().unwrap_or_else(|| as_a_whole(profile, module))
    });
    Some(named.collect())
}

/// The functions of a file at these addresses, as far as it has symbols of them. `None`: it cannot be read.
fn in_file(file: &Path, wanted: impl Iterator<Item = u64>) -> Option<HashMap<u64, String>> {
    let parts = ReadCache::new(File::open(file).ok()?);
    let file = object::File::parse(&parts).ok()?;
    let symbols = file.symbols();
    let symbols = symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
    let mut symbols: Vec<_> = symbols
        .map(|symbol| (symbol.address(), symbol.size(), symbol.index()))
        .collect();
    symbols.sort_unstable_by_key(|(address, size, _)| (*address, *size));
    let named = wanted.filter_map(|wanted| {
        let behind = symbols.partition_point(|(address, ..)| *address <= wanted);
        let (address, size, index) = symbols.get(behind.checked_sub(1)?)?;
        if wanted - address >= *size {
            return None;
        }
        let symbol = file.symbol_by_index(*index).ok()?;
        let name = demangle_auto(symbol.name().ok()?.into(), None);
        Some((wanted, name.into_owned()))
    });
    Some(named.collect())
}

#[cfg(test)]
mod tests {
    use super::super::symbols::tests::{own, profile_of};
    use super::*;

    #[test]
    fn a_function_is_found_from_its_first_to_its_last_byte() {
        let path = std::env::current_exe().unwrap();
        let parts = ReadCache::new(File::open(&path).unwrap());
        let file = object::File::parse(&parts).unwrap();
        let mut symbols = file.symbols();
        let own_name = "a_function_is_found_from_its_first_to_its_last_byte";
        let symbol = symbols.find(|symbol| {
            symbol.size() > 1 && symbol.name().is_ok_and(|name| name.contains(own_name))
        });
        let symbol = symbol.unwrap();
        let last = symbol.address() + symbol.size() - 1;
        let places = [symbol.address(), last].map(|address| format!("0:{address:x}"));
        let unknown = [":1f".to_owned(), "1:10".to_owned()];
        let places = places.into_iter().chain(unknown).collect();
        let mut profile = profile_of(own(), places);
        profile.modules.push(admin::api::ProfiledModule {
            path: "/lib/none.so.6".into(),
            build_id: None,
            is_program: false,
        });
        let named = functions(&profile).unwrap();
        assert!(named[0].contains(own_name), "{named:?}");
        assert_eq!(named[0], named[1]);
        assert_eq!(named[2..], ["[unknown]", "[none.so.6]"]);
    }

    #[test]
    fn a_program_of_another_build_is_not_named() {
        let mut module = own();
        module.build_id = Some("00ff".into());
        assert_eq!(functions(&profile_of(module, vec!["0:10".into()])), None);
        let ill_formed = profile_of(own(), vec!["0".into()]);
        assert_eq!(functions(&ill_formed), None);
    }
}
