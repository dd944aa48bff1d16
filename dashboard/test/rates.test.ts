import assert from "node:assert/strict";
import { test } from "node:test";
import { between } from "../src/api/rates";
import type { Stats } from "../src/api/api.types";

const stats = (second: number, ...nodes: [string, number][]) =>
  ({
    as_of: new Date(second * 1000).toISOString(),
    nodes: nodes.map(([node, messages_in]) => ({ node, node_name: node, counts: { messages_in } })),
    partial: [],
  }) as unknown as Stats;

test("rates of nodes and their sum", () => {
  const rates = between(stats(0, ["a", 0], ["b", 100]), stats(2, ["a", 20], ["b", 140]))!;
  assert.equal(rates.nodes.get("a")!.messages_in, 10);
  assert.equal(rates.total.messages_in, 30);
});

test("a node that came, or was started again, has no rate yet", () => {
  const rates = between(stats(0, ["a", 500]), stats(2, ["a", 20], ["b", 140]))!;
  assert.equal(rates.nodes.get("a")!.messages_in, undefined);
  assert.equal(rates.total.messages_in, undefined);
  assert.equal(between(null, stats(2)), null);
});
