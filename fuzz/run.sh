#!/bin/sh
# Runs targets of crates/fuzz under libFuzzer with a stable toolchain, from the kept corpus and the seeds on.
#
#   fuzz/run.sh SECONDS [TARGET ...]      all targets unless some are named; 0 seconds only build them
#
# HERALD_FUZZ_SEED is the seed of libFuzzer, which otherwise takes one from the time.
# What is found goes to fuzz/artifacts, what is reached to fuzz/work; both are ignored by git.
set -eu
cd "$(dirname "$0")"
seconds=$1
shift
all=$(sed -n '/^\[\[bin\]\]/{n;s/^name = "\(.*\)"/\1/p}' Cargo.toml)
[ $# -gt 0 ] || set -- $all

# What `cargo fuzz run --sanitizer none` does with a nightly toolchain.
flags='-Cpasses=sancov-module -Ccodegen-units=4'
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags="$flags -Cllvm-args=-sanitizer-coverage-$option"
done
host=$(rustc -vV | sed -n 's/^host: //p')
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
for target in "$@"; do
    RUSTFLAGS="$flags" cargo build --locked --release --quiet --target "$host" --bin "$target"
    mkdir -p "work/$target" "artifacts/$target" "corpus/$target"
    cargo run --locked --quiet --manifest-path ../Cargo.toml -p herald-fuzz --example seeds -- "$target" "work/$target"
    [ "$seconds" != 0 ] || continue
    program=$target_dir/$host/release/$target
    # scripts/soak looks for this line.
    echo "program: $program"
    "$program" -max_total_time="$seconds" -seed="${HERALD_FUZZ_SEED:-0}" -max_len=4096 -timeout=10 -rss_limit_mb=1024 \
        -artifact_prefix="artifacts/$target/" -print_final_stats=1 "work/$target" "corpus/$target"
done
