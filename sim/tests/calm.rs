//! Runs in which nothing goes wrong: everything that is promised holds, and all comes to rest.

use std::process::Command;

#[test]
fn where_nothing_goes_wrong_all_promises_hold() {
    for seed in ["0", "1", "2"] {
        let program = env!("CARGO_BIN_EXE_herald-sim");
        let output = Command::new(program).args(["run", seed, "--calm"]).output();
        let output = output.expect("it can be started");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
    }
}
