//! A target of `herald-fuzz` under libFuzzer; the name of the binary says which.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&fuzz::Target> = LazyLock::new(|| {
    let path = std::env::current_exe().expect("a program has a path");
    let name = path.file_name().and_then(|name| name.to_str());
    let target = name.and_then(fuzz::find);
    target.expect("the binary is named after a target")
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
