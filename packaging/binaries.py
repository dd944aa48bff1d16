#!/usr/bin/env python3
"""Prints, for each package of a folder that has a broker: the architecture, the SHA-256 of the broker, the package."""

import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import zipfile

ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "x64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def in_tar(content: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return tar.extractfile(name).read()


def in_image(path: pathlib.Path):
    """The architecture and the broker of each image in an OCI archive; an index may be in another."""
    with tarfile.open(path) as tar:

        def blob(described: dict) -> bytes:
            content = tar.extractfile("blobs/" + described["digest"].replace(":", "/")).read()
            assert described["digest"] == "sha256:" + hashlib.sha256(content).hexdigest(), f"{path}: {described}"
            return content

        waiting = json.load(tar.extractfile("index.json"))["manifests"]
        while waiting:
            found = json.loads(blob(waiting.pop()))
            waiting += found.get("manifests", [])
            for layer in found.get("layers", []):
                architecture = json.loads(blob(found["config"]))["architecture"]
                yield architecture, in_tar(blob(layer), "usr/bin/heraldmq")


def brokers(path: pathlib.Path):
    """The architecture and the content of each broker in a package."""
    name = path.name
    named = next((ours for theirs, ours in ARCHITECTURES.items() if theirs in name), None)
    if name.endswith(".deb") and "-dbgsym" not in name:
        tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], check=True, capture_output=True).stdout
        yield named, in_tar(tar, "./usr/bin/heraldmq")
    elif name.endswith(".tar.gz") and named:
        yield named, in_tar(path.read_bytes(), name.removesuffix(".tar.gz") + "/heraldmq")
    elif name.endswith(".whl"):
        with zipfile.ZipFile(path) as wheel:
            yield named, next(wheel.read(one) for one in wheel.namelist() if one.endswith("/scripts/heraldmq"))
    elif name.endswith(".tgz") and named:
        yield named, in_tar(path.read_bytes(), "package/bin/heraldmq")
    elif name.endswith(".oci.tar"):
        yield from in_image(path)


def main():
    folder = pathlib.Path(sys.argv[1])
    for path in sorted([*folder.iterdir(), *folder.glob("apt/pool/**/*.deb")]):
        if path.is_file():
            for architecture, content in brokers(path):
                print(architecture, hashlib.sha256(content).hexdigest(), path.relative_to(folder))


if __name__ == "__main__":
    main()
