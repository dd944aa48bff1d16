#!/usr/bin/env python3
"""Writes container images as OCI archives, from folders that hold their files.

    image.py PREFIX --version V --revision COMMIT --epoch SECONDS ARCH=FOLDER ...

makes PREFIX-ARCH.oci.tar for each architecture, and PREFIX.oci.tar with all of them under one index, whose digest it prints.

Invariant: the same files, version, revision and time give the same bytes. Owners are not those of the folders: what is in
/var/lib/heraldmq and /tmp is the broker's, the rest is root's.

buildah is not used, because its OCI images cannot have a health check. Docker reads it in the place where BuildKit writes it.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import tarfile
from datetime import datetime, timezone

USER = 65532
OWNED = ("var/lib/heraldmq", "tmp")
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
SECOND_NS = 1_000_000_000


def as_json(value) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode()


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def member(name: str, *, epoch: int, kind=tarfile.REGTYPE, mode=0o644, size=0, target="") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.linkname, info.mtime = kind, mode, size, target, epoch
    if any(name == owned or name.startswith(owned + "/") for owned in OWNED):
        info.uid = info.gid = USER
    return info


def tar_of_folder(folder: pathlib.Path, epoch: int) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode & 0o7777
            if path.is_symlink():
                tar.addfile(member(name, epoch=epoch, kind=tarfile.SYMTYPE, mode=0o777, target=os.readlink(path)))
            elif path.is_dir():
                tar.addfile(member(name, epoch=epoch, kind=tarfile.DIRTYPE, mode=mode))
            else:
                content = path.read_bytes()
                tar.addfile(member(name, epoch=epoch, mode=mode, size=len(content)), io.BytesIO(content))
    return written.getvalue()


class Layout:
    """Blobs by their digests, and what an archive of them needs."""

    def __init__(self, epoch: int):
        self.epoch = epoch
        self.blobs: dict[str, bytes] = {}

    def add(self, kind: str, content: bytes) -> dict:
        digest = digest_of(content)
        self.blobs[digest] = content
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    def write(self, path: str, index: dict, others: dict[str, bytes]):
        files = {"oci-layout": as_json({"imageLayoutVersion": "1.0.0"}), "index.json": as_json(index), **others}
        files |= {f"blobs/{digest.replace(':', '/')}": content for digest, content in self.blobs.items()}
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for folder in ("blobs", "blobs/sha256"):
                tar.addfile(member(folder, epoch=self.epoch, kind=tarfile.DIRTYPE, mode=0o755))
            for name, content in sorted(files.items()):
                tar.addfile(member(name, epoch=self.epoch, size=len(content)), io.BytesIO(content))


def config_of(architecture: str, layer: bytes, labels: dict, created: str) -> dict:
    return {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/heraldmq"],
            "Cmd": ["serve", "--config", "/etc/heraldmq/heraldmq.yml", "--data-dir", "/var/lib/heraldmq"],
            "ExposedPorts": {"1883/tcp": {}, "8091/tcp": {}},
            "Volumes": {"/var/lib/heraldmq": {}},
            "WorkingDir": "/var/lib/heraldmq",
            "StopSignal": "SIGTERM",
            "Labels": labels,
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/heraldmq", "ready"],
                "Interval": 10 * SECOND_NS,
                "Timeout": 5 * SECOND_NS,
                "StartPeriod": 60 * SECOND_NS,
                "Retries": 3,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [digest_of(layer)]},
        "history": [{"created": created, "created_by": "scripts/package"}],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix")
    parser.add_argument("--version", required=True)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("folders", nargs="+", metavar="ARCH=FOLDER")
    said = parser.parse_args()

    created = datetime.fromtimestamp(said.epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    image = "org.opencontainers.image"
    labels = {
        f"{image}.title": "HeraldMQ",
        f"{image}.description": "message broker for MQTT 3.1, 3.1.1 and 5.0",
        f"{image}.licenses": "Apache-2.0",
        f"{image}.version": said.version,
        f"{image}.revision": said.revision,
        f"{image}.created": created,
    }
    tag = f"heraldmq:{said.version}"
    whole, manifests = Layout(said.epoch), []
    for architecture, folder in (one.split("=", 1) for one in said.folders):
        layout = Layout(said.epoch)
        tar = tar_of_folder(pathlib.Path(folder), said.epoch)
        layer = layout.add(LAYER, gzip.compress(tar, 9, mtime=0))
        config = layout.add(CONFIG, as_json(config_of(architecture, tar, labels, created)))
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer], "annotations": labels}
        described = layout.add(MANIFEST, as_json(manifest))
        described["platform"] = {"os": "linux", "architecture": architecture}
        if architecture == "arm64":
            described["platform"]["variant"] = "v8"
        manifests.append(described)
        whole.blobs |= layout.blobs

        # `docker load` of versions before 25 reads this file instead of the index.
        blob = {key: f"blobs/{one['digest'].replace(':', '/')}" for key, one in {"Config": config, "layer": layer}.items()}
        docker = as_json([{"Config": blob["Config"], "RepoTags": [tag], "Layers": [blob["layer"]]}])
        named = {**described, "annotations": {f"{image}.ref.name": said.version, "io.containerd.image.name": tag}}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}
        layout.write(f"{said.prefix}-{architecture}.oci.tar", index, {"manifest.json": docker})

    both = whole.add(INDEX, as_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": labels}))
    named = {**both, "annotations": {f"{image}.ref.name": said.version, "io.containerd.image.name": tag}}
    whole.write(f"{said.prefix}.oci.tar", {"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}, {})
    print(both["digest"])


if __name__ == "__main__":
    main()
