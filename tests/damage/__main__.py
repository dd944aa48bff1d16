"""Damages data folders, and counts what brokers say and lose.

    tests/blackbox/.venv/bin/python tests/damage [one|three|two|running|election] [--rounds N] [--seed N] [--output FILE]

`one`: the folder of a lone node. `three`: that of one node of three. `two`: tables of two nodes of three, of different stores. `running`: a
table of a leader, while clients publish, with the longest time between two acknowledgements. `election`: the end of the log of a node that takes part in the election after its leader is gone. A line of JSON for each round goes to FILE, a table
to the terminal. docs/operate/damage.md says more.

Exit code: 1 if anything was silent, changed, died or lost; 2 if the experiment itself failed; 0 otherwise. The broker is the one that
HERALDMQ_BIN names, else that of the profile `dev`.
"""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
os.environ.setdefault("HERALDMQ_BIN", str(ROOT / "target" / "debug" / "heraldmq"))
sys.path[:0] = [str(ROOT / "tests" / "blackbox"), str(ROOT / "tests" / "cluster")]

from judge import FAILURES, OUTCOMES, SAID  # noqa: E402
from one import VARIANTS, OneNode  # noqa: E402
from three import Election, Running, ThreeNodes, TwoNodes  # noqa: E402

EXPERIMENTS = {experiment.name: experiment for experiment in (OneNode, ThreeNodes, TwoNodes, Running, Election)}
SEEDS = range(1, 1 << 32)


def parse():
    parser = argparse.ArgumentParser(prog="damage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", default="one", choices=EXPERIMENTS)
    parser.add_argument("--rounds", type=int, metavar="N", help="how many; default: 20, or what there is time for")
    parser.add_argument("--seconds", type=float, metavar="N", help="no round begins later")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="those of all rounds follow from it")
    parser.add_argument("--round-seed", type=int, metavar="N", help="play the one round that has this seed")
    parser.add_argument("--variant", choices=[variant.name for variant in VARIANTS], help="only this folder, for `one`")
    parser.add_argument("--options", default="", metavar="WORDS", help="of `heraldmq store damage`, for `one` and `three`")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE", help="gets a line of JSON for each round")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="gets the damaged folders of `one` that failed, as they were started")
    parser.add_argument("--work", type=pathlib.Path, metavar="DIR", help="where the folders are; default: a temporary one")
    return parser.parse_args()


def seeds(arguments):
    """Those of the rounds."""
    if arguments.round_seed is not None:
        yield arguments.round_seed
        return
    draw, began, number = random.Random(arguments.seed), time.monotonic(), 0
    most = arguments.rounds or (None if arguments.seconds else 20)
    while most is None or number < most:
        if arguments.seconds and number and time.monotonic() - began > arguments.seconds:
            return
        number += 1
        yield draw.choice(SEEDS)


def show(result):
    done = result.damage
    place = f" at {done['offset']}" if "offset" in done else ""
    place += f", longest gap {done['longest_gap_s']} s" if "longest_gap_s" in done else ""
    said = f" by {','.join(result.by)}" if result.by else ""
    missing = ", ".join(f"{count} {name}" for name, count in result.missing.items() if count) or "nothing"
    print(
        f"seed {result.seed}: {result.outcome}{said}: {result.variant}, {done.get('kind')} of {done.get('file')}{place}: "
        f"missing {missing}",
        flush=True,
    )
    if result.outcome in FAILURES:
        print(f"    {result.what[:1000] or 'nothing was said'}", flush=True)


def table(results):
    """Rounds by kind of file and outcome."""
    counts = collections.defaultdict(collections.Counter)
    for result in results:
        counts[result.damage.get("files", "-")][result.outcome] += 1
        counts["all"][result.outcome] += 1
    names = [outcome for outcome in dict.fromkeys([*OUTCOMES, *counts["all"]]) if outcome in OUTCOMES or counts["all"][outcome]]
    lines = [f"{'files':<10}{'rounds':>8}" + "".join(f"{name:>10}" for name in names)]
    for kind in sorted(counts, key=lambda kind: (kind == "all", kind)):
        of = counts[kind]
        lines.append(f"{kind:<10}{of.total():>8}" + "".join(f"{of[name]:>10}" for name in names))
    said = [result for result in results if result.outcome == SAID]
    only = sum(result.by == ["verify"] for result in said)
    return "\n".join([*lines, f"said only by `store verify`, and not by the broker: {only} of {len(said)}"])


def interrupt(*_):
    raise KeyboardInterrupt


def main() -> int:
    arguments = parse()
    # Also where a shell has had them ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    results = []
    with tempfile.TemporaryDirectory(prefix="rounds-", dir=arguments.work, ignore_cleanup_errors=True) as work:
        experiment = EXPERIMENTS[arguments.experiment](pathlib.Path(work), arguments.variant, arguments.options.split())
        experiment.keep = arguments.keep
        try:
            experiment.control()
            for seed in seeds(arguments):
                result = experiment.round(seed)
                results.append(result)
                show(result)
                if arguments.output:
                    with arguments.output.open("a") as file:
                        print(json.dumps(dataclasses.asdict(result)), file=file)
        except KeyboardInterrupt:
            pass
        except Exception:
            traceback.print_exc()
            return 2
        finally:
            getattr(experiment, "close", lambda: None)()
    print(f"\n{table(results)}")
    return 1 if any(result.outcome in FAILURES for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
