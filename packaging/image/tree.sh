# shellcheck shell=sh
# shellcheck disable=SC2154  # variables of the script that sources it
# The files of the container image; scripts/package sources it.

# debian FILE FOLDER: a package of packaging/image/debian.txt, fetched once and unpacked.
debian() {
    need curl curl
    kept="$target/debian"
    mkdir -p "$kept" "$2"
    sum=${1%% *}
    url=${1##* }
    file="$kept/${url##*/}"
    if ! echo "$sum  $file" | sha256sum --check --status 2>/dev/null; then
        curl -sSfL --retry 3 -o "$file.new" "$url" ||
            fail "$url is not there: Debian may have a newer version, whose sum goes into packaging/image/debian.txt"
        echo "$sum  $file.new" | sha256sum --check --status || fail "$url has another sum than packaging/image/debian.txt says"
        mv "$file.new" "$file"
    fi
    dpkg-deb -x "$file" "$2"
}

# libraries_of ARCHITECTURE FOLDER: Debian's packages for it, unpacked.
libraries_of() {
    grep -v '^#' "$root/packaging/image/debian.txt" >"$parts/debian"
    while read -r line; do
        case $line in
            *" $1 "* | *' all '*) debian "$line" "$2" ;;
        esac
    done <"$parts/debian"
}

# image_tree ARCHITECTURE FOLDER: the root of the image. It has no shell and nothing that is not needed.
image_tree() {
    tree=$2
    unpacked="$parts/debian-$1"
    triplet="$(machine_of "$1")-linux-gnu"
    rm -rf "$tree"
    [ -d "$unpacked" ] || libraries_of "$1" "$unpacked"
    put 755 "$parts/$1/heraldmq" usr/bin/heraldmq

    # The loader stands where the binary asks for it, and finds the libraries in the folder of Debian.
    loader=$(readelf -l "$parts/$1/heraldmq" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p')
    put 755 "$unpacked/lib/$triplet/${loader##*/}" "$loader"
    while read -r library; do
        case $library in
            ld-linux*) continue ;;
            libgcc_s*) file=$(cc -print-file-name="$library") ;;
            *) file="$unpacked/lib/$triplet/$library" ;;
        esac
        put 755 "$file" "usr/lib/$triplet/$library"
    done <"$parts/$1/libraries"
    put 644 "$unpacked/usr/share/doc/libc6/copyright" usr/share/doc/libc6/copyright
    put 644 "$unpacked/usr/share/doc/ca-certificates/copyright" usr/share/doc/ca-certificates/copyright
    find "$unpacked/usr/share/ca-certificates" -name '*.crt' | LC_ALL=C sort | xargs cat >"$parts/certificates"
    put 644 "$parts/certificates" etc/ssl/certs/ca-certificates.crt

    with_host 0.0.0.0 | sed '/^http:/,/^[a-z]/s/^  #host: 127\.0\.0\.1$/  host: 0.0.0.0/' >"$parts/heraldmq.yml"
    [ "$(grep -c '^ *host: 0\.0\.0\.0$' "$parts/heraldmq.yml")" = 2 ] || fail "conf/standalone.yml has another form than expected"
    put 644 "$parts/heraldmq.yml" etc/heraldmq/heraldmq.yml
    printf '%s\n' 'root:x:0:0:root:/:/sbin/nologin' 'heraldmq:x:65532:65532:HeraldMQ:/var/lib/heraldmq:/sbin/nologin' >"$parts/passwd"
    printf '%s\n' 'root:x:0:' 'heraldmq:x:65532:' >"$parts/group"
    echo 'hosts: files dns' >"$parts/nsswitch"
    # Container engines put their own over it; where none does, `localhost` is still known.
    printf '%s\n' '127.0.0.1 localhost' '::1 localhost' >"$parts/hosts"
    put 644 "$parts/passwd" etc/passwd
    put 644 "$parts/group" etc/group
    put 644 "$parts/nsswitch" etc/nsswitch.conf
    put 644 "$parts/hosts" etc/hosts
    put 644 "$root/LICENSE" usr/share/doc/heraldmq/copyright
    put 644 "$parts/THIRD-PARTY-LICENSES.txt" usr/share/doc/heraldmq/THIRD-PARTY-LICENSES.txt
    mkdir -p "$tree/proc" "$tree/sys" "$tree/dev" "$tree/tmp" "$tree/var/lib/heraldmq"
    chmod 1777 "$tree/tmp"
    chmod 700 "$tree/var/lib/heraldmq"
}
