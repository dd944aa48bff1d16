import assert from "node:assert/strict";
import { test } from "node:test";
import type { ClusterStatus, DamagedReplica } from "../src/api/api.types";
import { damagedOf, elsewhere, recovery } from "../src/words/damaged";

const replica = (more: Partial<DamagedReplica>) =>
  ({
    store: "inbox",
    shard: 2,
    damage: "a block",
    seconds: 41,
    recovers_from: "other_replicas",
    state: "receives the table of the leader",
    ...more,
  }) as DamagedReplica;
const status = (more: object) => ({ node: "1", nodes: [], shards: [], env: "", ...more }) as unknown as ClusterStatus;

test("a replica says what heals it and how far that is", () => {
  for (const [more, expected] of [
    [{ received_bytes: 3_100_000 }, "from the other replicas: receives the table of the leader, 3.1 MB so far"],
    [{ state: "waits for node b2" }, "from the other replicas: waits for node b2"],
    [{ recovers_from: "nothing", state: "does not serve" }, "from nothing: does not serve"],
  ] as [Partial<DamagedReplica>, string][])
    assert.equal(recovery(replica(more)), expected);
});

test("other nodes are named with how many of their replicas cannot be used", () => {
  const node = (id: string, unusable_replicas?: number, name = `mq-${id}`) => ({ node: id, name, unusable_replicas });
  const of = status({ nodes: [node("1", 5), node("2", 1), node("3", 0), node("4"), node("5", 2, "")] });
  assert.deepEqual(elsewhere(of), [
    "mq-2 has 1 replica that cannot be used. The dashboard of that node says why.",
    "5 has 2 replicas that cannot be used. The dashboard of that node says why.",
  ]);
});

test("a node of an earlier version says nothing of damage", () => {
  assert.deepEqual([damagedOf(status({})), damagedOf(null), elsewhere(null)], [[], [], []]);
});
