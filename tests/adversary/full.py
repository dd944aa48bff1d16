"""Measures attacks at their full size, and makes the page of what they cost."""

import argparse
import json
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "blackbox"), str(HERE.parent / "cluster")]

import attacks  # noqa: E402
from measure import table  # noqa: E402
from measure.runner import alone, judge  # noqa: E402
from measure.table import page  # noqa: E402


def told(verdict, nodes=False) -> dict:
    cost = verdict.cost
    return {
        "nodes": 3 if nodes else 1,
        "group": verdict.attack.group,
        "attack": verdict.attack.name,
        "version": verdict.version,
        "n": verdict.n,
        "row": table.row(verdict),
        "sent": cost.cause.sent,
        "cpu": cost.cpu,
        "allowed": cost.cause.cpu(),
        "pause": cost.pause,
        "control_pause": cost.control_pause,
        "memory": cost.memory,
        "log": cost.log,
        "folder": cost.folder,
        "stored": cost.stored,
        "stored_brief": verdict.brief[-1].stored if verdict.brief else None,
        "links": cost.links,
        "seconds": cost.seconds,
        "threads": cost.threads,
        "growth": verdict.growth,
        "broken": verdict.broken(),
        "about": verdict.attack.about,
    }


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="names or groups of attacks, separated by commas")
    options.add_argument("--versions", default="4,5", help="protocol levels, or `one`: another one for each attack")
    options.add_argument("--quick", action="store_true", help="the sizes of continuous integration")
    options.add_argument("--nodes", action="store_true", help="over three nodes")
    options.add_argument("--size", type=int, help="instead of the attack's own size")
    options.add_argument("--again", type=int, default=2, help="how often an attack that exceeds a bar is measured again")
    options.add_argument("--json", type=pathlib.Path, help="a line for each attack is added to this file")
    options.add_argument("--page", type=pathlib.Path, help="the page is written here")
    options.add_argument("--from", dest="old", type=pathlib.Path, help="makes the page of this file; measures nothing")
    options.add_argument("--list", action="store_true", help="the attacks' names")
    options = options.parse_args()
    if options.old:
        entries = [json.loads(line) for line in options.old.read_text().splitlines()]
    else:
        entries = list(measured(options))
    if options.page:
        options.page.write_text(page(entries))
    return 1 if any(entry["broken"] for entry in entries) else 0


def measured(options):
    words = [word for word in options.only.split(",") if word]
    cluster, place = None, alone
    if options.nodes:
        from measure.nodes import NAMES, Place

        cluster = place = Place()
        words = words or NAMES
    try:
        for number, attack in enumerate(attacks.load()):
            if words and not any(word in (attack.group, attack.name, type(attack).__name__) for word in words):
                continue
            if options.list:
                print(type(attack).__name__)
                continue
            if options.versions == "one":
                versions = [attack.versions[number % len(attack.versions)]]
            else:
                versions = [v for v in attack.versions if str(v) in options.versions.split(",")]
            for version in versions:
                size = options.size or (attack.small if options.quick else attack.n)
                start = time.monotonic()
                entry = told(judge(attack, version, size, options.again, place), options.nodes)
                print(f"{time.monotonic() - start:5.1f} s {entry['row']}", file=sys.stderr, flush=True)
                if options.json:
                    with options.json.open("a") as file:
                        file.write(json.dumps(entry) + "\n")
                yield entry
    finally:
        if cluster:
            cluster.close()


if __name__ == "__main__":
    sys.exit(main())
