# Recipes for `just` (https://just.systems). Each is a command that also works by hand.

# All that continuous integration runs; changes nothing.
verify:
    scripts/test

# Repairs what can be repaired by a program, and generates again what is generated.
fix:
    cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
    cargo fmt --all
    UPDATE_GENERATED=1 cargo test --quiet -p herald-config -p herald-broker
    cargo run --quiet -p xtask -- conformance

# Rust tests; arguments go to cargo.
test *arguments:
    cargo test --workspace {{arguments}}

# Black-box tests with other people's clients; arguments go to pytest.
blackbox *arguments:
    cargo build --release -p heraldmq
    tests/blackbox/run.sh {{arguments}}

# Benchmarks; arguments go to cargo.
bench *arguments:
    cargo bench --workspace --bench '*' {{arguments}}
