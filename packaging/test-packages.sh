# shellcheck shell=sh
# shellcheck disable=SC2154  # variables of the script that sources it
# Proves the packages that scripts/package has made; it sources this file.

[ "$(id -u)" = 0 ] || fail "only root can make another root"
need unshare util-linux
need ip iproute2
work="$out/test"
! mount | grep -q " on $work/" || fail "$work is in use"
rm -rf "$work"
mkdir -p "$work"

# base SUITE: a new root of Debian, made once for all parts.
base() {
    need debootstrap debootstrap
    [ ! -d "$work/$1" ] || return 0
    debootstrap --variant=minbase "$1" "$work/$1.new" >"$out/debootstrap.log" 2>&1 ||
        fail "debootstrap failed, see $out/debootstrap.log"
    echo '127.0.0.1 localhost' >"$work/$1.new/etc/hosts"
    mv "$work/$1.new" "$work/$1"
    say "a new root with Debian $(cat "$work/$1/etc/debian_version")"
}

# fresh SUITE [PACKAGE …]: another root, in `fresh`, with Debian packages that the test asks for.
fresh() {
    base "$1"
    fresh="$work/fresh"
    rm -rf "$fresh"
    cp -a "$work/$1" "$fresh"
    mkdir "$fresh/packages"
    cp "$root/packaging/test-broker.sh" "$root/packaging/test-started" "$root/packaging/test-installed" \
        "$root/packaging/test-registry.py" "$fresh/packages/"
    shift
    [ $# -gt 0 ] || return 0
    cp /etc/resolv.conf "$fresh/etc/resolv.conf"
    in_root '' sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"' \
        sh "$@" >"$out/apt.log" 2>&1 || fail "apt-get install $* failed, see $out/apt.log"
}

# in_root NETWORK COMMAND …: runs it in the new root, with processes of its own; with --net, with a network of its own, in
# which every port is free.
in_root() {
    network=$1
    shift
    # shellcheck disable=SC2016,SC2086  # for the inner shell; one word or none
    unshare --mount --pid $network --fork --kill-child sh -c '
        set -eu
        ip link set lo up
        mount --rbind /dev "$1/dev"
        mount -t proc proc "$1/proc"
        mount -t tmpfs tmpfs "$1/run"
        fresh=$1
        shift
        exec chroot "$fresh" /usr/bin/env -i HOME=/root TERM=dumb LANG=C.UTF-8 \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
    ' sh "$fresh" "$@"
}

test_deb() {
    fresh bookworm
    deb="$out/heraldmq_${version}_$native.deb"
    cp "$deb" "$fresh/packages/first.deb"
    # The same with a higher version, to upgrade to.
    dpkg-deb -R "$deb" "$work/second"
    sed -i "s/^Version: .*/&+1/" "$work/second/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone --build "$work/second" "$fresh/packages/second.deb" >/dev/null
    rm -rf "$work/second"
    cp "$out/heraldmq-dbgsym_${version}_$native.deb" "$fresh/packages/dbgsym.deb"
    # Not everywhere is systemd at hand; the unit itself is proven by hand below.
    if command -v systemd-analyze >/dev/null 2>&1; then
        said=$(systemd-analyze verify "$root/packaging/heraldmq.service" 2>&1 |
            grep -v 'is not executable\|Command .man ' || true)
        [ -z "$said" ] || fail "systemd does not like the unit: $said"
        systemd-analyze security --offline=true --threshold=20 "$root/packaging/heraldmq.service" >"$out/security" 2>&1 ||
            fail "the unit lets the broker do too much, see $out/security"
        say "the unit is right; $(tail -n 1 "$out/security" | tr -d '→')"
    fi
    in_root --net sh -eu /packages/test-installed
}

# The oldest Debian that still has a mirror, if the C library of the broker lets it.
test_archive() {
    suite=bookworm
    ! at_least 2.31 "$(cat "$parts/$native/glibc")" || suite=bullseye
    fresh "$suite"
    cp "$out/heraldmq-$release-linux-$native.tar.gz" "$fresh/packages/"
    in_root --net sh /packages/test-started archive
}

test_wheel() {
    fresh bookworm python3-venv
    cp "$out"/heraldmq-*.whl "$fresh/packages/"
    in_root --net sh /packages/test-started wheel
}

test_npm() {
    fresh bookworm python3 nodejs npm
    cp "$out"/heraldmq-*.tgz "$fresh/packages/"
    in_root --net sh /packages/test-started npm
}

# Signed by a key that is made for it.
test_apt() {
    need gpg gpg
    fresh bookworm python3
    GNUPGHOME=$(mktemp -d)
    export GNUPGHOME
    gpg --batch --quiet --passphrase '' --quick-generate-key 'test <test@localhost>' ed25519 sign 1d 2>/dev/null
    gpg --batch --export-secret-keys >"$work/apt-key"
    gpgconf --kill gpg-agent
    rm -rf "$GNUPGHOME"
    unset GNUPGHOME
    make_apt "$fresh/packages/apt" "$work/apt-key"
    in_root --net sh /packages/test-started apt
}

# Without a daemon: read-only, as its own user, without capabilities, without a network but for the loopback interface.
test_image() {
    first=$(python3 -c 'import json, sys, tarfile
print(json.load(tarfile.open(sys.argv[1]).extractfile("index.json"))["manifests"][0]["digest"])' "$out/$image_name.oci.tar")
    again=$(make_images "$work/again")
    [ "$first" = "$again" ] || fail "the index of the image was $first, and is $again when it is made again"
    cmp -s "$out/$image_name.oci.tar" "$work/again.oci.tar" || fail "the image differs when it is made again"
    rm -f "$work"/again*
    say "made twice, the image has the digest $again"
    need podman podman
    need runc runc
    # Without CAP_SYS_RESOURCE the limits that podman asks for by itself cannot be set.
    printf '%s\n' '[containers]' 'default_ulimits = []' '[engine]' 'cgroup_manager = "cgroupfs"' 'events_logger = "file"' \
        'runtime = "runc"' >"$work/containers.conf"
    HERALD_TEST_IMAGE="$out/$image_name-$native.oci.tar" HERALD_TEST_FOLDER="$work" HERALD_TEST_VERSION="$release" \
        sh "$root/packaging/test-image"
}

# The other architecture, by an emulator, in the root of its image.
test_arm64() {
    [ -x "$parts/arm64/heraldmq" ] || {
        say "not tried: there is no binary for arm64"
        return 0
    }
    need qemu-aarch64-static qemu-user-static
    need setpriv util-linux
    fresh="$work/fresh"
    rm -rf "$fresh"
    cp -a "$parts/image-arm64" "$fresh"
    chown -R 65532:65532 "$fresh/var/lib/heraldmq" "$fresh/tmp"
    cp "$(command -v qemu-aarch64-static)" "$fresh/usr/bin/"
    # shellcheck disable=SC2016  # for the inner shell
    unshare --mount --pid --net --fork --kill-child sh -c '
        set -eu
        ip link set lo up
        mount -t proc proc /proc
        mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        exec sh "$2/packaging/test-emulated" "$1" "$2"
    ' sh "$fresh" "$root"
}

test_sbom() {
    make_sbom "$work/again.json"
    cmp "$out/heraldmq-$release.cdx.json" "$work/again.json" || fail "the list of components differs when it is made again"
    python3 -c 'import json, sys
listed = json.load(open(sys.argv[1]))
names = {component["name"] for component in listed["components"]}
assert {"tokio", "rustls", "openraft"} <= names, names
assert "/root/" not in open(sys.argv[1]).read()
print(len(listed["components"]), "components, the same when listed again")' "$out/heraldmq-$release.cdx.json"
}

# By a key that is made for it.
test_sign() {
    need minisign minisign
    mkdir "$work/sign"
    cp "$out/SHA256SUMS" "$work/sign/"
    (
        cd "$work/sign"
        minisign -G -W -f -p public -s secret >/dev/null
        sign_sums secret
        minisign -V -q -p public -m SHA256SUMS
        echo >>SHA256SUMS
        ! minisign -V -q -p public -m SHA256SUMS 2>/dev/null || fail "a changed list has a signature that fits"
    )
    (cd "$out" && sha256sum --check --quiet SHA256SUMS)
    echo "the sums are signed and right"
}

python3 "$root/packaging/binaries.py" "$out" >"$work/binaries"
while read -r architecture sum package; do
    [ "$sum" = "$(cat "$parts/$architecture/sum")" ] || fail "$package has another binary for $architecture"
done <"$work/binaries"
say "the same binary in $(wc -l <"$work/binaries") packages"
for architecture in $architectures; do
    [ -n "$given" ] || at_least 2.28 "$(cat "$parts/$architecture/glibc")" ||
        fail "the broker for $architecture needs glibc $(cat "$parts/$architecture/glibc")"
done
for part in $wanted; do
    "test_$part"
    say "proven: $part"
done
rm -rf "$work"
