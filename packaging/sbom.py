#!/usr/bin/env python3
"""Prints a list of components of cargo-cyclonedx so that the same sources give the same list.

    sbom.py FILE ROOT --version V --revision COMMIT --epoch SECONDS

The serial number, which is random there or missing, follows from the rest; the time is that of the sources; folders of this machine are
taken out of names.
"""

import argparse
import json
import pathlib
import uuid
from datetime import datetime, timezone


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    said = parser.parse_args()

    text = said.file.read_text().replace(f"file://{said.root.resolve()}/", "file:///").replace(f"{said.root.resolve()}/", "")
    listed = json.loads(text)
    listed.pop("serialNumber", None)
    time = datetime.fromtimestamp(said.epoch, timezone.utc)
    listed["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ")
    content = json.dumps([listed, said.version, said.revision], sort_keys=True)
    listed["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"
    print(json.dumps(listed, indent=2, sort_keys=True))


if __name__ == "__main__":
    main()
