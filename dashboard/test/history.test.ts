import assert from "node:assert/strict";
import { test } from "node:test";
import { beginLate, byReason, merge, ofNodes, stack, sum, times, worst } from "../src/api/history";
import type { History } from "../src/api/api.types";

const at = (second: number) => new Date(Date.UTC(2026, 0, 1) + second * 1000).toISOString();
const answer = (...nodes: [node: string, end: number | null, values: (number | null)[]][]): History => ({
  step_s: 10,
  partial: [],
  nodes: nodes.map(([node, end, values]) => ({
    node,
    node_name: node,
    end: end === null ? null : at(end),
    series: { x: values },
  })),
});
const line = (series: ReturnType<typeof merge>, node: string) =>
  series!.nodes.find((one) => one.node === node)!.values.x;

test("nodes with different ends stand on one time line", () => {
  const series = merge(null, answer(["a", 30, [1, 2, 3]], ["b", 20, [4]]));
  assert.deepEqual(line(series, "a"), [1, 2, 3]);
  assert.deepEqual(line(series, "b"), [null, 4, null]);
  assert.equal(times(series!).at(-1), Date.parse(at(30)) / 1000);
});

test("what came since is put behind, and does not stand twice", () => {
  const first = merge(null, answer(["a", 30, [1, 2, 3]]));
  assert.deepEqual(line(merge(first, answer(["a", 50, [3, 4, 5]])), "a"), [1, 2, 3, 4, 5]);
});

test("a node that is late fills its gap", () => {
  let series = merge(null, answer(["a", 20, [1, 2]], ["b", 20, [1, 2]]));
  series = merge(series, answer(["a", 30, [3]], ["b", null, []]));
  assert.deepEqual(line(series, "b"), [1, 2, null]);
  assert.deepEqual(line(merge(series, answer(["a", 40, [4]], ["b", 40, [3, 4]])), "b"), [1, 2, 3, 4]);
});

test("an hour is kept", () => {
  let series = merge(null, answer(["a", 3600, new Array(360).fill(1)]));
  series = merge(series, answer(["a", 3620, [2, 2]]));
  assert.equal(series!.length, 360);
  assert.deepEqual(line(series, "a")!.slice(-3), [1, 2, 2]);
});

test("a sum that lacks a node is another line", () => {
  const series = merge(null, answer(["a", 30, [1, 1, 1]], ["b", 20, [null, 1]]))!;
  assert.deepEqual(sum(series, "x"), { all: [null, 2, null], lacking: [1, null, 1] });
});

test("a sum of before a node was started again lacks it", () => {
  const series = merge(null, {
    step_s: 10,
    partial: [],
    nodes: [
      named("a", { x: [20, 20, 20, 20, 20, 20], d: [1, 1, 1, 1, 1, 1] }),
      named("b", { x: [20, 20, 20, 20, 20, 20] }),
      named("c", { x: [20] }),
    ],
  })!;
  assert.deepEqual(sum(series, "x"), { all: [null, null, null, null, null, 60], lacking: [40, 40, 40, 40, 40, null] });
  assert.deepEqual(beginLate(series), [{ name: "c", from: Date.parse(at(20)) / 1000 }]);
  // Nodes without a drop for a reason have nothing to add to those of the others.
  assert.deepEqual(sum(series, "d").all.at(-1), 1);
});

test("a sum lacks a member that has never answered, and none that has left the cluster", () => {
  const [b, x] = [{ node: "b", node_name: "b", reason: "down", missing: ["history"] } as const, { x: [1, 1] }];
  const series = merge(null, { step_s: 10, partial: [{ ...b, missing: [...b.missing] }], nodes: [named("a", x)] })!;
  assert.deepEqual(sum(series, "x"), { all: [null, null], lacking: [1, 1] });
  assert.deepEqual(beginLate(series), [{ name: "b", from: null }]);
  const left = merge(series, { step_s: 10, partial: [], nodes: [named("a", x)] })!;
  assert.deepEqual(sum(left, "x"), { all: [1, 1], lacking: [null, null] });
  assert.deepEqual(beginLate(left), []);
});

test("no answer of any node changes nothing", () => {
  assert.equal(merge(null, answer(["a", null, []])), null);
});

const named = (node: string, series: Record<string, (number | null)[]>): History["nodes"][number] => ({
  node,
  node_name: node,
  end: at(30),
  series,
});

test("a percentile is that of the worst node", () => {
  const series = merge(null, {
    step_s: 10,
    partial: [],
    nodes: [named("a", { p: [1, null, null] }), named("b", { p: [3, 2, null] })],
  })!;
  assert.deepEqual(worst(series, "p"), [3, 2, null]);
  assert.deepEqual(worst(series, "q"), [null, null, null]);
});

test("a node has the same colour whether or not others have a value", () => {
  const series = merge(null, {
    step_s: 10,
    partial: [],
    nodes: [named("b", { p: [1, null], q: [2, 2] }), named("a", { p: [null, null], q: [3, 3] })],
  });
  assert.deepEqual(ofNodes(series, "p"), [{ name: "b", color: 2, values: [1, null] }]);
  assert.deepEqual(
    ofNodes(series, "q").map(({ name, color }) => [name, color]),
    [
      ["a", 1],
      ["b", 2],
    ],
  );
  assert.deepEqual(ofNodes(null, "p"), []);
});

test("lines stand on one another, and break off where nothing is known", () => {
  assert.deepEqual(
    stack([
      [1, 2, null, null],
      [4, null, 5, null],
    ]),
    [
      [1, 2, 0, null],
      [5, 2, 5, null],
    ],
  );
  assert.deepEqual(stack([]), []);
});

test("drops stand by reason, most first, and the rest together", () => {
  const values = Object.fromEntries(
    ["a", "b", "c", "d", "e", "f", "g"].map((reason, n) => [`dropped_per_s.${reason}`, [0, n, n]]),
  );
  const series = merge(null, {
    step_s: 10,
    partial: [],
    nodes: [named("one", { ...values, dropped_per_s: [0, 21, 21] })],
  })!;
  const lines = byReason(series);
  assert.deepEqual(
    lines.map(({ reason }) => reason),
    ["g", "f", "e", "d", "c", null],
  );
  assert.deepEqual(lines[0]!.all, [0, 6, 6]);
  assert.deepEqual(lines.at(-1)!.all, [0, 1, 1]);
});
