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
    cargo run --quiet -p xtask -- limits --page
    packaging/helm/render

# Rust tests; arguments go to cargo.
test *arguments:
    cargo test --workspace {{arguments}}

# Black-box tests with other people's clients; arguments go to pytest.
blackbox *arguments:
    cargo build --profile quick -p heraldmq -p heraldmq-outlet-kafka
    tests/blackbox/run.sh {{arguments}}

# Benchmarks; arguments go to cargo.
bench *arguments:
    cargo bench --workspace --bench '*' {{arguments}}

# Counts of the code base: lines, circles of modules, silent returns, assertions; of another checkout with --root PATH.
counts *arguments:
    @cargo run --quiet -p xtask -- counts {{arguments}}

# The rules of the code base; --update lowers the numbers of what is known to break them, and --list RULE shows it.
check *arguments:
    @cargo run --quiet -p xtask -- check {{arguments}}

# A simulated cluster of whole brokers in one thread, under faults that a seed decides on.
sim seed *arguments:
    cargo run --quiet -p herald-sim -- run {{seed}} {{arguments}}

# So many seeds; `--first` is the first one.
sim-many count *arguments:
    cargo run --quiet -p herald-sim -- many {{count}} {{arguments}}
