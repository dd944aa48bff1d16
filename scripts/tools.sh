# What the scripts beside this file share; it is sourced, with `root` set to the top folder.

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# Installs Debian packages, if this is root on Debian; otherwise says that they are needed.
install() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        fail "this is missing, and only root on Debian can install it here: apt-get install $*"
    fi
    echo "installing $*" >&2
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >&2
}

# need COMMAND PACKAGE: installs the package if there is no such command.
need() {
    command -v "$1" >/dev/null 2>&1 || install "$2"
}

# What building takes. The memory allocator is written in C.
need_compilers() {
    need cc build-essential
    need make build-essential
    # rustup puts cargo here, and a shell that was open at that time does not know it.
    [ ! -d "$HOME/.cargo/bin" ] || PATH="$PATH:$HOME/.cargo/bin"
    command -v cargo >/dev/null 2>&1 ||
        fail "a Rust toolchain (1.95 or newer) is needed: https://rustup.rs"
}

# Where cargo builds to.
target_dir() {
    echo "${CARGO_TARGET_DIR:-$root/target}"
}
