//! A seed repeats its run byte for byte: what a failure has shown can be looked at again.

use std::process::{Command, Stdio};

/// What a run tells: the digest of all frames, operations and effects, or the promise that was broken.
fn told(seed: u64, padding: usize) -> String {
    let program = env!("CARGO_BIN_EXE_herald-sim");
    let mut run = Command::new(program);
    run.args(["run", &seed.to_string()]).stdin(Stdio::null());
    // Addresses of the stack differ, too.
    run.env("HERALD_PADDING", "x".repeat(padding));
    let output = run.output().expect("it can be started");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_seed_repeats_its_run_byte_for_byte() {
    for seed in [1, 2, 5, 7, 11, 21] {
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(move || told(seed, 1));
            let other = told(seed, 5_000);
            (one.join().expect("it ends"), other)
        });
        assert!(one.contains(&format!("seed {seed}: ")), "{one}");
        assert_eq!(one, other, "two runs of seed {seed}");
    }
}
