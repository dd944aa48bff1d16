import assert from "node:assert/strict";
import { test } from "node:test";
import { decades, follow, roundUp } from "../src/parts/scale";

test("round tops", () => {
  for (const [highest, top] of [
    [0, 1],
    [0.3, 0.5],
    [1, 1],
    [1.01, 2],
    [3, 5],
    [7, 10],
    [36_120, 50_000],
  ] as const)
    assert.equal(roundUp(highest), top);
});

test("it grows at once and shrinks after a minute below half", () => {
  let scale = follow(null, 90, 0);
  assert.equal(scale.top, 100);
  scale = follow(scale, 101, 1000);
  assert.equal(scale.top, 200);
  scale = follow(scale, 20, 2000);
  scale = follow(scale, 20, 61_000);
  assert.equal(scale.top, 200);
  scale = follow(scale, 150, 61_500);
  scale = follow(scale, 20, 62_000);
  scale = follow(scale, 20, 121_999);
  assert.equal(scale.top, 200, "the minute begins anew");
  assert.equal(follow(scale, 20, 122_000).top, 20);
});

test("a logarithmic axis has whole decades", () => {
  assert.deepEqual(decades([0, 0.4, 31]), [0.1, 100]);
  assert.deepEqual(decades([2, 3]), [1, 10]);
  assert.deepEqual(decades([10]), [10, 100]);
  assert.deepEqual(decades([0]), [1, 10]);
});
