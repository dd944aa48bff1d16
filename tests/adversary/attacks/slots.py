"""Client identifiers that are chosen so that one shard of the stores would have them all."""

import itertools
import json

from harness.broker import run

from . import Attack
from .connect import in_batches

SHARDS = 8
ALL = (1 << 64) - 1
# What XXH3 without a seed mixes names of 4 to 8 bytes with.
KEY = 0x1CAD21F72C81017C ^ 0xDB979083E96DD4DE
PRIME = 0x9FB21C651E98DF25


def slot_of(name: bytes) -> int:
    """The upper 16 bits of XXH3 of a name of 4 to 8 bytes, as anybody can compute them."""
    mixed = (int.from_bytes(name[-4:], "little") + (int.from_bytes(name[:4], "little") << 32)) ^ KEY
    mixed ^= (mixed << 49 | mixed >> 15) & ALL ^ (mixed << 24 | mixed >> 40) & ALL
    mixed = mixed * PRIME & ALL
    mixed ^= (mixed >> 35) + len(name)
    mixed = mixed * PRIME & ALL
    return (mixed ^ mixed >> 28) >> 48


class SlotsOfOneShard(Attack):
    """n durable sessions with identifiers chosen for one of eight shards: it may have no more than twice its share."""

    n, small = 2000, 400
    grows = False

    def sets(self, _folder):
        return {"session_store_initial_shards": SHARDS, "inbox_store_initial_shards": SHARDS}

    def prepare(self, stage):
        made = (f"{number:08x}" for number in itertools.count())
        self.names = list(itertools.islice((n for n in made if slot_of(n.encode()) < 65536 // SHARDS), stage.n))

    def run(self, stage):
        stage.cause.synced += 3 * stage.n
        in_batches(stage, stage.n, lambda number: stage.durable(self.names[number], waits=False))

    def judge(self, stage, cost):
        stage.broker.stop()
        found = json.loads(run("store", "inspect", "--json", stage.broker.data_dir).stdout)
        shards = next(store for store in found["stores"] if store["name"] == "session")["shards"]
        kinds = [kind for shard in shards for kind in shard["rows"] if kind["kind"] == "sessions"]
        rows = [kind["rows"] for kind in kinds]
        if max(rows) > 2 * sum(rows) / SHARDS:
            cost.faults.append(f"one of {SHARDS} shards has {max(rows)} of {sum(rows)} sessions")
