# What the scripts beside this file share; it is sourced, with `root` set to the top folder.

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# Installs Debian packages, if this is root on Debian; otherwise says that they are needed. Services that come
# with them are not started.
install() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        fail "this is missing, and only root on Debian can install it here: apt-get install $*"
    fi
    echo "installing $*" >&2
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
    else
        policy=''
    fi
    installed=0
    apt-get update -qq >&2 &&
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
            -o Dpkg::Options::=--force-confold "$@" >&2 || installed=$?
    [ -z "$policy" ] || rm -f "$policy"
    [ "$installed" = 0 ] || fail "apt-get install $* failed"
}

# need COMMAND PACKAGE: installs the package if there is no such command.
need() {
    command -v "$1" >/dev/null 2>&1 || install "$2"
}

# at_least HAVE WANTED: whether a version such as 1.95.0 is as new as another.
at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# The first thing in a text that looks like a version.
version_in() {
    printf '%s\n' "$1" | sed -n 's/[^0-9]*\([0-9][0-9]*\(\.[0-9][0-9]*\)*\).*/\1/p' | head -n 1
}

# What building takes. The memory allocator is written in C.
need_compilers() {
    need cc build-essential
    need make build-essential
    need_rust
}

# The Rust that Cargo.toml asks for: the one in the path, or else that of rustup, which a shell that was open
# when it was installed does not know.
need_rust() {
    rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)
    if ! has_rust && [ -x "$HOME/.cargo/bin/cargo" ]; then
        PATH="$HOME/.cargo/bin:$PATH"
    fi
    has_rust || fail "a Rust toolchain ($rust or newer) is needed, and cargo is $(cargo --version 2>/dev/null ||
        echo 'not there'), rustc is $(rustc --version 2>/dev/null || echo 'not there'): https://rustup.rs"
}

has_rust() {
    for program in cargo rustc; do
        said=$("$program" --version 2>/dev/null) || return 1
        at_least "$(version_in "$said")" "$rust" || return 1
    done
}

# The Go that the client of the tests asks for, in `go`: the one in the path, or one that somebody has put into
# /usr/local, or one that Debian's fetches from the Go module proxy.
need_go() {
    wanted=$(sed -n 's/^go //p' "$root/tests/blackbox/clients/go/go.mod")
    need go golang-go
    go=''
    for candidate in "$(command -v go)" /usr/local/go/bin/go; do
        [ -x "$candidate" ] || continue
        # Not the one that it would fetch by itself.
        found=$(version_in "$(cd / && GOTOOLCHAIN=local "$candidate" version | sed 's/^go version go//')")
        if at_least "$found" "$wanted"; then
            go=$candidate
            return
        fi
    done
    fetch_go
}

# Toolchains are modules. Go from 1.21 on fetches them by itself; older ones are told to.
fetch_go() {
    case $(uname -m) in
        x86_64) machine=amd64 ;;
        aarch64) machine=arm64 ;;
        *) fail "Go $wanted or newer is needed for the Go client of the tests: https://go.dev/dl" ;;
    esac
    module="golang.org/toolchain@v0.0.1-go$wanted.linux-$machine"
    echo "fetching Go $wanted from the module proxy" >&2
    # Outside of any module, whose go.mod an older Go might not understand.
    (cd / && GOFLAGS='' GOTOOLCHAIN=local go mod download "$module") ||
        fail "Go $wanted or newer is needed for the Go client of the tests, $(go version) is here, and $module \
cannot be fetched: https://go.dev/dl"
    toolchain="$(cd / && GOTOOLCHAIN=local go env GOMODCACHE)/$module"
    # Modules hold no programs, as far as their files' permissions say.
    chmod -R u+w "$toolchain"
    find "$toolchain/bin" "$toolchain/pkg/tool" -type f -exec chmod +x {} +
    go="$toolchain/bin/go"
    export GOTOOLCHAIN=local GOROOT="$toolchain"
}

# The program that checks the workflows, in `actionlint`: Go builds it from the module proxy, once.
need_actionlint() {
    actionlint_version=1.7.12
    mkdir -p "$(target_dir)"
    folder="$(cd "$(target_dir)" && pwd)/actionlint-$actionlint_version"
    actionlint="$folder/actionlint"
    [ -x "$actionlint" ] && return
    need_go
    echo "building actionlint $actionlint_version" >&2
    # It may want a newer Go than the tests, which fetches itself.
    (cd / && env -u GOROOT GOTOOLCHAIN=auto GOFLAGS='' GOBIN="$folder" \
        "$go" install "github.com/rhysd/actionlint/cmd/actionlint@v$actionlint_version") ||
        fail "actionlint $actionlint_version cannot be built from the Go module proxy"
}

# The program that renders and packs charts, in the path as `helm`: Go builds it from the module proxy, once.
need_helm() {
    helm_version=3.18.6
    mkdir -p "$(target_dir)"
    folder="$(cd "$(target_dir)" && pwd)/helm-$helm_version"
    PATH="$folder:$PATH"
    [ -x "$folder/helm" ] && return
    need_go
    echo "building helm $helm_version" >&2
    (cd / && env -u GOROOT GOTOOLCHAIN=auto GOFLAGS='' GOBIN="$folder" \
        "$go" install "helm.sh/helm/v3/cmd/helm@v$helm_version") ||
        fail "helm $helm_version cannot be built from the Go module proxy"
}

# The server of NATS for the tests of outlets, in the path as `nats-server`: Go builds it from the module proxy, once.
need_nats_server() {
    nats_version=2.15.2
    mkdir -p "$(target_dir)"
    folder="$(cd "$(target_dir)" && pwd)/nats-server-$nats_version"
    PATH="$folder:$PATH"
    [ -x "$folder/nats-server" ] && return
    need_go
    echo "building nats-server $nats_version" >&2
    # It may want a newer Go than the tests, which fetches itself.
    (cd / && env -u GOROOT GOTOOLCHAIN=auto GOFLAGS='' GOBIN="$folder" CGO_ENABLED=0 \
        "$go" install "github.com/nats-io/nats-server/v2@v$nats_version") ||
        fail "nats-server $nats_version cannot be built from the Go module proxy"
}

# Kafka from Maven Central, in HERALD_KAFKA: 45 files of Java (44 MB), which need a Java of version 17 or later.
need_kafka() {
    kafka_version=4.3.1
    mkdir -p "$(target_dir)"
    HERALD_KAFKA="$(cd "$(target_dir)" && pwd)/kafka-$kafka_version"
    export HERALD_KAFKA
    need java default-jre-headless
    [ ! -e "$HERALD_KAFKA/complete" ] || return 0
    need mvn maven
    echo "fetching Kafka $kafka_version" >&2
    mvn -q -B -f "$root/tests/blackbox/kafka/pom.xml" \
        org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$HERALD_KAFKA" >&2 ||
        fail "Kafka $kafka_version cannot be fetched from Maven Central"
    (cd "$HERALD_KAFKA" && sha256sum --check --strict --quiet "$root/tests/blackbox/kafka/sha256sums" >&2) ||
        fail "what Maven Central has of Kafka $kafka_version is not what tests/blackbox/kafka/sha256sums says"
    touch "$HERALD_KAFKA/complete"
}

# Where programs are kept that take minutes to build: HERALD_CACHE, or a folder of this machine.
cache_dir() {
    if [ -n "${HERALD_CACHE:-}" ]; then
        echo "$HERALD_CACHE"
    elif [ "$(id -u)" = 0 ]; then
        echo /var/cache/heraldmq-before
    else
        echo "${XDG_CACHE_HOME:-$HOME/.cache}/heraldmq-before"
    fi
}

# The control plane of Kubernetes for the tests of its controllers, in HERALD_KUBERNETES: one program that is etcd, kube-apiserver
# or kube-controller-manager, which Go builds from the module proxy, once. On two cores that takes about 12 minutes beside other
# work, and 4 GB of disk; of that, the program stays (119 MB), and the modules, in Go's own folder (1 GB). For another version, change
# all of k8s.io in tests/cluster/kubernetes/go.mod, and run `go mod tidy` there.
need_kubernetes() {
    sources="$root/tests/cluster/kubernetes"
    kubernetes_version=$(sed -n 's/^\tk8s.io\/kubernetes v//p' "$sources/go.mod" | head -n 1)
    sum=$(cat "$sources/go.mod" "$sources/main.go" | sha256sum | cut -c1-12)
    HERALD_KUBERNETES="$(cache_dir)/kubernetes-$kubernetes_version-$sum"
    export HERALD_KUBERNETES
    [ ! -x "$HERALD_KUBERNETES" ] || return 0
    need_go
    echo "building Kubernetes $kubernetes_version, which takes some minutes" >&2
    built=$(mktemp -d)
    # All three would call themselves v0.0.0-master otherwise.
    minor=${kubernetes_version#*.}
    package=k8s.io/component-base/version
    version="-X $package.gitVersion=v$kubernetes_version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
    # What the compiler keeps is needed by nothing else. It may want a newer Go than the tests, which fetches itself.
    (cd "$sources" && env -u GOROOT GOTOOLCHAIN=auto GOFLAGS=-mod=readonly GOCACHE="$built/cache" CGO_ENABLED=0 \
        "$go" build -p 2 -trimpath -buildvcs=false -ldflags "-s -w $version" -o "$built/kubernetes" .) || {
        rm -rf "$built"
        fail "Kubernetes $kubernetes_version cannot be built from the Go module proxy"
    }
    mkdir -p "$(dirname "$HERALD_KUBERNETES")"
    # Whole, or not at all.
    cp "$built/kubernetes" "$HERALD_KUBERNETES.new.$$" && mv "$HERALD_KUBERNETES.new.$$" "$HERALD_KUBERNETES"
    rm -rf "$built"
}

# The collector of OpenTelemetry for the tests, in HERALD_OTELCOL: Go builds it from the module proxy, once. On two cores that takes
# about two minutes; the program has 38 MB. For another version, change tests/blackbox/collector/go.mod, and run `go mod tidy -e` there:
# the proxy lacks a module that only tests of the collector need.
need_otelcol() {
    sources="$root/tests/blackbox/collector"
    otelcol_version=$(sed -n 's/^\tgo.opentelemetry.io\/collector\/otelcol v//p' "$sources/go.mod" | head -n 1)
    sum=$(cat "$sources/go.mod" "$sources/main.go" | sha256sum | cut -c1-12)
    HERALD_OTELCOL="$(cache_dir)/otelcol-$otelcol_version-$sum"
    export HERALD_OTELCOL
    [ ! -x "$HERALD_OTELCOL" ] || return 0
    need_go
    echo "building the collector of OpenTelemetry $otelcol_version, which takes some minutes" >&2
    built=$(mktemp -d)
    # It may want a newer Go than the tests, which fetches itself.
    (cd "$sources" && env -u GOROOT GOTOOLCHAIN=auto GOFLAGS=-mod=readonly CGO_ENABLED=0 \
        "$go" build -p 2 -trimpath -buildvcs=false -ldflags '-s -w' -o "$built/otelcol" .) || {
        rm -rf "$built"
        fail "the collector of OpenTelemetry $otelcol_version cannot be built from the Go module proxy"
    }
    mkdir -p "$(dirname "$HERALD_OTELCOL")"
    # Whole, or not at all.
    cp "$built/otelcol" "$HERALD_OTELCOL.new.$$" && mv "$HERALD_OTELCOL.new.$$" "$HERALD_OTELCOL"
    rm -rf "$built"
}

# mosquitto_passwd comes with a broker whose service would be started, now or after the next boot: only the
# program is taken from the package.
need_mosquitto_passwd() {
    command -v mosquitto_passwd >/dev/null 2>&1 && return
    unpacked="$(target_dir)/mosquitto"
    [ -x "$unpacked/usr/bin/mosquitto_passwd" ] || unpack "$unpacked" mosquitto
    PATH="$PATH:$unpacked/usr/bin"
}

# The broker of that package, for the tests of bridges: `mosquitto` in the path. It finds the libraries that Debian does not
# have everywhere beside it.
need_mosquitto() {
    command -v mosquitto >/dev/null 2>&1 && return
    unpacked="$(target_dir)/mosquitto"
    if [ ! -x "$unpacked/bin/mosquitto" ]; then
        unpack "$unpacked" mosquitto libwrap0 libdlt2 libnsl2 libtirpc3
        mkdir -p "$unpacked/bin"
        cat >"$unpacked/bin/mosquitto.new" <<'SCRIPT'
#!/bin/sh
folder=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
for libraries in "$folder"/usr/lib/*-linux-gnu* "$folder"/lib/*-linux-gnu*; do
    LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
export LD_LIBRARY_PATH
exec "$folder/usr/sbin/mosquitto" "$@"
SCRIPT
        chmod +x "$unpacked/bin/mosquitto.new"
        mv "$unpacked/bin/mosquitto.new" "$unpacked/bin/mosquitto"
    fi
    PATH="$PATH:$unpacked/bin"
}

# prometheus and promtool, for the tests of dashboards and alerts: the package would start a service as well.
need_prometheus() {
    command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1 && return
    unpacked="$(target_dir)/prometheus"
    [ -x "$unpacked/usr/bin/prometheus" ] && [ -x "$unpacked/usr/bin/promtool" ] || unpack "$unpacked" prometheus
    PATH="$PATH:$unpacked/usr/bin"
}

# unpack FOLDER PACKAGE ...: fetches Debian packages and unpacks them into a folder, without installing them.
unpack() {
    into=$1
    shift
    command -v apt-get >/dev/null 2>&1 || fail "this is missing; Debian has it in the packages $*"
    mkdir -p "$into"
    echo "fetching $*" >&2
    (
        cd "$into" && apt-get download -qq "$@" >&2 || exit 1
        for package in "$@"; do
            for file in "$package"_*.deb; do dpkg-deb -x "$file" . || exit 1; done
        done
    ) || fail "the packages $* cannot be fetched and unpacked"
}

# PostgreSQL for the tests, which make servers of their own: Debian's is not to make and start another.
need_postgresql() {
    # Debian keeps the server's programs out of the path.
    if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1; then
        return
    fi
    settings=/etc/postgresql-common/createcluster.conf
    if [ "$(id -u)" = 0 ] && [ ! -e "$settings" ]; then
        mkdir -p "$(dirname "$settings")"
        echo 'create_main_cluster = false' >"$settings"
    fi
    install postgresql
}

# Where cargo builds to; a configuration of cargo may say so too.
target_dir() {
    if [ -n "${CARGO_TARGET_DIR:-}" ]; then
        echo "$CARGO_TARGET_DIR"
        return
    fi
    said=$(cd "$root" && cargo metadata --no-deps --offline --format-version 1 2>/dev/null |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p') || said=''
    echo "${said:-$root/target}"
}

# The version that Cargo.toml gives all crates.
source_version() {
    sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml"
}

# is_current BINARY: whether it is a broker of this version, and nothing that it is made of is newer.
is_current() {
    [ -x "$1" ] || return 1
    [ "$("$1" -V 2>/dev/null)" = "heraldmq $(source_version)" ] || return 1
    [ -z "$(sources_of "$1" | while read -r source; do
        # One that is not there any more counts as well.
        [ -e "$source" ] && ! [ "$source" -nt "$1" ] || echo "$source"
    done)" ]
}

# What a broker is made of, one file a line: as Cargo has written it down beside it, or else all crates.
sources_of() {
    for source in "$root/Cargo.toml" "$root/Cargo.lock" "$root"/crates/*/Cargo.toml; do
        [ ! -e "$source" ] || echo "$source"
    done
    if [ -e "$1.d" ]; then
        # Folders and the log of commits are there for the build script; a commit alone changes no source.
        sed 's/^[^:]*: //; s/\\ /\t/g' "$1.d" | tr ' \t' '\n ' | grep '/crates/.*\.[a-z]*$'
    else
        find "$root"/crates/*/src "$root"/crates/*/build.rs -type f 2>/dev/null
    fi
}

# is_same BINARY: whether a broker that was built elsewhere is one of these sources, as it says itself. Where there is no
# git checkout, the version has to do.
is_same() {
    said=$("$1" --version 2>/dev/null) || return 1
    [ "$(printf '%s\n' "$said" | head -n 1)" = "heraldmq $(source_version)" ] || return 1
    [ -e "$root/.git" ] || return 0
    commit=$(cd "$root" && git log -1 --format='%h of %cs' 2>/dev/null) || return 1
    [ -z "$(cd "$root" && git status --porcelain -- crates Cargo.toml Cargo.lock)" ] || return 1
    printf '%s\n' "$said" | grep -qxF "commit: $commit"
}

# find_broker [PROFILE ...]: a broker that is there and fits the sources, in `broker`; fails if there is none. It is of one
# of the profiles, by their folders' names, or somebody has put it into the path.
find_broker() {
    target=$(target_dir)
    [ $# -gt 0 ] || set -- release quick
    for profile in "$@"; do
        candidate="$target/$profile/heraldmq"
        if is_current "$candidate"; then
            broker=$candidate
            return 0
        fi
    done
    candidate=$(command -v heraldmq 2>/dev/null) && is_same "$candidate" && broker=$candidate
}

# The broker for the tests, in HERALDMQ_BIN: the one that this names already, or one that fits the sources (such as that
# which `cargo test --workspace` leaves), which is built if there is none.
need_broker() {
    if [ -z "${HERALDMQ_BIN:-}" ]; then
        if ! find_broker debug release quick; then
            build_broker quick
            broker="$(target_dir)/quick/heraldmq"
        fi
        HERALDMQ_BIN=$broker
    fi
    [ -x "$HERALDMQ_BIN" ] || fail "there is no broker at $HERALDMQ_BIN"
    export HERALDMQ_BIN
}

# build_broker PROFILE [TARGET]: builds it, and says how far that is: on a terminal Cargo does. With a target such as
# x86_64-unknown-linux-gnu.2.28 it is built by zig, for that C library.
build_broker() {
    profile=$1
    # Who waits for a first broker does not wait for the load-testing tool and the memory allocator.
    left_out=''
    [ "$1" != serve ] || left_out=--no-default-features
    # The tests have the program of outlets to Kafka beside it.
    [ "$1" != quick ] || left_out='-p heraldmq-outlet-kafka'
    built_in="$(target_dir)/${2:+${2%%.*}/}$profile"
    set -- "${2:+zig}build" --locked -p heraldmq --manifest-path "$root/Cargo.toml" --profile "$1" ${2:+--target "$2"} $left_out
    # What Cargo leaves as it is, because only times have changed, is up to date from now on.
    if [ -t 2 ]; then
        cargo "$@" && touch "$built_in/heraldmq"
        return
    fi
    # Also fetches them, in silence.
    crates=$(cargo tree --locked --manifest-path "$root/Cargo.toml" -p heraldmq $left_out -e normal,build --prefix none |
        sed 's/ (\*)$//' | sort -u | wc -l)
    outcome=$(mktemp)
    # cargo's own lines go into a pipe, in which its exit code would be lost.
    { cargo "$@" 2>&1 && echo built >"$outcome"; } | {
        begun=$(date +%s)
        done=0
        told=0
        while IFS= read -r line; do
            case $line in
                *' Compiling '*)
                    done=$((done + 1))
                    if [ "$told" -lt 9 ] && [ $((done * 10)) -ge $(((told + 1) * crates)) ]; then
                        told=$((done * 10 / crates))
                        echo "== $done of $crates crates, $(($(date +%s) - begun)) s"
                    fi
                    ;;
                *' Downloading '* | *' Downloaded '* | *' Blocking '* | *' Locking '*) ;;
                *) printf '%s\n' "$line" ;;
            esac
        done
    } >&2
    built=$(cat "$outcome")
    rm -f "$outcome"
    [ "$built" = built ] && touch "$built_in/heraldmq"
}

# The compiler by which the broker is built for an older C library than this machine's and for other machines: zig, and a
# cargo that uses it. They come from PyPI, into a folder of their own.
need_zig() {
    zig="$(target_dir)/zig"
    pinned="$root/packaging/zig.txt"
    if ! cmp -s "$pinned" "$zig/installed"; then
        need python3 python3
        python3 -c 'import ensurepip' 2>/dev/null || install python3-venv
        echo "installing $(grep -v '^#' "$pinned" | tr '\n' ' ')" >&2
        rm -rf "$zig"
        python3 -m venv "$zig/venv" && "$zig/venv/bin/pip" install -q --disable-pip-version-check -r "$pinned" >&2 ||
            fail "zig cannot be installed from PyPI"
        cp "$pinned" "$zig/installed"
    fi
    PATH="$zig/venv/bin:$PATH"
    # What zig and cargo-zigbuild keep goes with the folder.
    export ZIG_GLOBAL_CACHE_DIR="$zig/cache" ZIG_LOCAL_CACHE_DIR="$zig/cache" CARGO_ZIGBUILD_CACHE_DIR="$zig/wrappers"
}

# need_rust_target TARGET: the standard library for another machine.
need_rust_target() {
    [ -d "$(rustc --print target-libdir --target "$1")" ] || rustup target add "$1" >&2 ||
        fail "Rust's standard library for $1 is needed: rustup target add $1"
}

# unstable TEST: says that a test has failed, and has passed when it was run once more, alone. scripts/test repeats it
# at its end: it is a defect, of the test or of what it tests.
unstable() {
    echo "== unstable: $1" >&2
    [ -z "${HERALD_UNSTABLE:-}" ] || echo "$1" >>"$HERALD_UNSTABLE"
}

# is_listed <TESTS: whether there are tests, one a line, and all of them are in tests/unstable.csv.
is_listed() {
    some=no
    while read -r test; do
        some=yes
        cut -d, -f1 "$root/tests/unstable.csv" | sed 1d | grep -qxF "$test" || return 1
    done
    [ "$some" = yes ]
}

# run_pytest ARG ...: runs pytest in this folder, and once more, one at a time, what has failed if tests/unstable.csv lists
# all of it. A test that is not listed is never tried twice: what it has found could be rare.
run_pytest() {
    python=$root/tests/blackbox/.venv/bin/python
    kept=$(mktemp -d)
    status=0
    "$python" -m pytest -o "cache_dir=$kept" "$@" || status=$?
    if [ "$status" = 1 ] &&
        failed=$(PYTHONPATH="$root/tests/blackbox" "$python" -m harness.suite "$kept/v/cache/lastfailed"); then
        echo '== once more, alone: what has failed, and is listed as unstable' >&2
        status=0
        "$python" -m pytest -o "cache_dir=$kept" "$@" -n 0 --last-failed || status=$?
        if [ "$status" = 0 ]; then
            unstable "$failed"
        fi
    fi
    rm -rf "$kept"
    return "$status"
}
