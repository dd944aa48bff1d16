#!/usr/bin/env python3
"""Writes a wheel that holds the broker as a program: `pip install heraldmq` puts it beside `python`.

    wheel.py FOLDER BINARY --version V --platform manylinux_2_28_x86_64 --epoch SECONDS --licence FILE ... --readme FILE

Invariant: the same files, version and time give the same bytes.
"""

import argparse
import base64
import hashlib
import pathlib
import time
import zipfile

METADATA = """\
Metadata-Version: 2.4
Name: heraldmq
Version: {version}
Summary: message broker for MQTT 3.1, 3.1.1 and 5.0
License-Expression: Apache-2.0
{licences}Requires-Python: >=3.8
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Communications
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """\
Wheel-Version: 1.0
Generator: scripts/package
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--platform", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--readme", type=pathlib.Path, required=True)
    parser.add_argument("--licence", type=pathlib.Path, action="append", required=True)
    said = parser.parse_args()

    release = f"heraldmq-{said.version}"
    licences = "".join(f"License-File: {licence.name}\n" for licence in said.licence)
    metadata = METADATA.format(version=said.version, licences=licences, readme=said.readme.read_text())
    # The program comes first: `unzip -l` shows at once what the wheel is.
    files = {f"{release}.data/scripts/heraldmq": said.binary.read_bytes()}
    files |= {f"{release}.dist-info/licenses/{licence.name}": licence.read_bytes() for licence in said.licence}
    files[f"{release}.dist-info/METADATA"] = metadata.encode()
    files[f"{release}.dist-info/WHEEL"] = WHEEL.format(platform=said.platform).encode()

    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[f"{release}.dist-info/RECORD"] = (record + f"{release}.dist-info/RECORD,,\n").encode()

    path = said.folder / f"{release}-py3-none-{said.platform}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, time.gmtime(said.epoch)[:6])
            info.external_attr = (0o100755 if name.endswith("/scripts/heraldmq") else 0o100644) << 16
            wheel.writestr(info, content, zipfile.ZIP_DEFLATED, 9)
    print(path)


if __name__ == "__main__":
    main()
