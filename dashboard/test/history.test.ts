import assert from "node:assert/strict";
import { test } from "node:test";
import { byReason, merge, ofNodes, stack, sum, times, worst } from "../src/history";
import type { History } from "../src/api.types";

const at = (second: number) => new Date(Date.UTC(2026, 0, 1) + second * 1000).toISOString();
const answer = (...nodes: [node: string, end: number | null, values: (number | null)[]][]): History => ({
  step_s: 10, partial: [], nodes: nodes.map(([node, end, values]) => ({ node, node_name: node, end: end === null ? null : at(end), series: { x: values } })),
});
const line = (series: ReturnType<typeof merge>, node: string) => series!.nodes.find((one) => one.node === node)!.values.x;

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
  assert.deepEqual(sum(series, "x"), { all: [1, 2, null], lacking: [null, null, 1] });
});

test("no answer of any node changes nothing", () => {
  assert.equal(merge(null, answer(["a", null, []])), null);
});

const named = (node: string, series: Record<string, (number | null)[]>): History["nodes"][number] => ({ node, node_name: node, end: at(30), series });

test("a percentile is that of the worst node", () => {
  const series = merge(null, { step_s: 10, partial: [], nodes: [named("a", { p: [1, null, null] }), named("b", { p: [3, 2, null] })] })!;
  assert.deepEqual(worst(series, "p"), [3, 2, null]);
  assert.deepEqual(worst(series, "q"), [null, null, null]);
});

test("a node has the same colour whether or not others have a value", () => {
  const series = merge(null, { step_s: 10, partial: [], nodes: [named("b", { p: [1, null], q: [2, 2] }), named("a", { p: [null, null], q: [3, 3] })] });
  assert.deepEqual(ofNodes(series, "p"), [{ name: "b", color: 2, values: [1, null] }]);
  assert.deepEqual(ofNodes(series, "q").map(({ name, color }) => [name, color]), [["a", 1], ["b", 2]]);
  assert.deepEqual(ofNodes(null, "p"), []);
});

test("lines stand on one another, and break off where nothing is known", () => {
  assert.deepEqual(stack([[1, 2, null, null], [4, null, 5, null]]), [[1, 2, 0, null], [5, 2, 5, null]]);
  assert.deepEqual(stack([]), []);
});

test("drops stand by reason, most first, and the rest together", () => {
  const values = Object.fromEntries(["a", "b", "c", "d", "e", "f", "g"].map((reason, n) => [`dropped_per_s.${reason}`, [0, n, n]]));
  const series = merge(null, { step_s: 10, partial: [], nodes: [named("one", { ...values, dropped_per_s: [0, 21, 21] })] })!;
  const lines = byReason(series);
  assert.deepEqual(lines.map(({ reason }) => reason), ["g", "f", "e", "d", "c", null]);
  assert.deepEqual(lines[0]!.all, [0, 6, 6]);
  assert.deepEqual(lines.at(-1)!.all, [0, 1, 1]);
});
