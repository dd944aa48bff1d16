#!/usr/bin/env python3
"""A registry of npm that has the packages of a folder and no others: test-registry.py FOLDER PORT."""

import base64
import hashlib
import http.server
import json
import pathlib
import sys
import tarfile
import urllib.parse


def main():
    folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    address = f"http://127.0.0.1:{port}"
    answers = {}
    for path in folder.glob("*.tgz"):
        content = path.read_bytes()
        with tarfile.open(path) as tar:
            package = json.load(tar.extractfile("package/package.json"))
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
        version = {**package, "dist": {"tarball": f"{address}/-/{path.name}", "integrity": integrity}}
        said = {
            "name": package["name"],
            "dist-tags": {"latest": package["version"]},
            "versions": {package["version"]: version},
        }
        answers[f"/{package['name']}"] = json.dumps(said).encode()
        answers[f"/-/{path.name}"] = content

    class Registry(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            content = answers.get(urllib.parse.unquote(self.path))
            self.send_response(404 if content is None else 200)
            self.send_header("content-length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Registry).serve_forever()


if __name__ == "__main__":
    main()
