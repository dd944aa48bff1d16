import assert from "node:assert/strict";
import { test } from "node:test";
import { ending } from "../src/api/ending";

const minute = 60_000;

test("a login that is not used is said to end a minute before", () => {
  assert.equal(ending(0, 720 * minute, 28 * minute), null);
  assert.equal(ending(0, 720 * minute, 29 * minute - 1), null);
  assert.deepEqual(ending(0, 720 * minute, 29 * minute), { why: "idle", at: 30 * minute });
  assert.deepEqual(ending(0, null, 29.5 * minute), { why: "idle", at: 30 * minute });
  assert.equal(ending(0, 720 * minute, 30 * minute), null, "it has ended");
  assert.equal(ending(29 * minute, 720 * minute, 30 * minute), null, "it was used since");
});

test("so is one that is used, and old", () => {
  assert.deepEqual(ending(719 * minute, 720 * minute, 719.5 * minute), { why: "age", at: 720 * minute });
});
