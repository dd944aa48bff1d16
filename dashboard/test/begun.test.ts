import assert from "node:assert/strict";
import { test } from "node:test";
import type { ShardRow } from "../src/api/api.types";
import { half, outcome, undoneFor, type Begun } from "../src/api/begun";

const voters = ["a", "b", "c"].map((node) => ({ node, node_name: `mq-${node}`, reach: "up" as const }));
const shard = (store: ShardRow["store"], leader: string | null, more: Partial<ShardRow> = {}): ShardRow => ({
  store,
  shard: 0,
  leader,
  leader_name: leader && `mq-${leader}`,
  term: "7",
  first_slot: 0,
  last_slot: 65_535,
  serves: leader !== null,
  version: "1",
  voters,
  learners: [],
  holds: null,
  load: null,
  last_decision: null,
  ...more,
});
const transfer: Begun = {
  what: "transfer",
  store: "inbox",
  shard: 0,
  term: "7",
  to: "b",
  toName: "mq-b",
  at: 0,
  since: 0,
};
const split: Begun = { ...transfer, what: "split", at: 32_768 };

test("a transfer is over once the new leader is seen, or another in a later term", () => {
  assert.deepEqual(outcome(transfer, [shard("inbox", "a")], 1000), {
    over: false,
    says: "mq-b is taking over inbox 0: mq-a still leads it.",
  });
  assert.deepEqual(outcome(transfer, [shard("inbox", null, { term: "8" })], 1000), {
    over: false,
    says: "mq-b is taking over inbox 0: it has no leader.",
  });
  assert.deepEqual(outcome(transfer, [shard("inbox", "b", { term: "8" })], 1000), {
    over: true,
    says: "mq-b leads inbox 0.",
  });
  const undone = outcome(transfer, [shard("inbox", "a", { term: "10" })], 1000);
  assert.ok(undone.over && undone.says.startsWith("mq-a leads inbox 0 in term 10, not mq-b:"), undone.says);
  assert.deepEqual(outcome(transfer, [shard("inbox", "a")], 31_000), {
    over: true,
    says: "mq-b has not become the leader of inbox 0 within 30 s: mq-a still leads it.",
  });
});

test("a split is over once somebody leads the new shard", () => {
  const made = (leader: string | null) => [
    shard("inbox", "a", { last_slot: 32_767 }),
    shard("inbox", leader, { shard: 32_768, first_slot: 32_768 }),
    shard("retain", "c"),
  ];
  assert.equal(outcome(split, [shard("inbox", "a"), shard("retain", "a", { shard: 32_768 })], 1000).over, false);
  assert.deepEqual(outcome(split, made(null), 1000), {
    over: false,
    says: "inbox 0 is being split: inbox 32768 has no leader yet.",
  });
  assert.deepEqual(outcome(split, made("b"), 1000), {
    over: true,
    says: "inbox 0 was split: inbox 32768 has the slots from 32768 to 65535, and mq-b leads it. The inbox store has 2 shards.",
  });
});

test("a transfer that leaves a node with two shards less may be undone", () => {
  const rows = [shard("inbox", "a"), shard("session", "b"), shard("retain", "c")];
  assert.deepEqual(undoneFor(rows[0]!, "b", rows), { name: "mq-a", has: 0, more: 2 });
  const uneven = [...rows, shard("inbox", "a", { shard: 9 })];
  assert.equal(undoneFor(uneven[0]!, "b", uneven), null);
});

test("a shard is split where its load halves, else in the middle, as the broker does", () => {
  assert.equal(half(shard("inbox", "a")), 32_768);
  assert.equal(half(shard("inbox", "a", { first_slot: 10, last_slot: 12 })), 12);
  assert.equal(half(shard("inbox", "a", { first_slot: 10, last_slot: 11 })), 11);
  assert.equal(half(shard("inbox", "a", { first_slot: 10, last_slot: 10 })), null);
  assert.equal(half(shard("inbox", "a", { load: { half: { slot: 77, below: 50 } } as ShardRow["load"] })), 77);
});
