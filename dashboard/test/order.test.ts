import assert from "node:assert/strict";
import { test } from "node:test";
import { clicked, ordered } from "../src/words/order";

test("rows are ordered by a column, and what is not known comes last", () => {
  const rows = [{ n: 2 }, { n: null }, { n: 10 }, { n: 1 }];
  assert.deepEqual(
    ordered(rows, (row) => row.n, false).map((row) => row.n),
    [1, 2, 10, null],
  );
  assert.deepEqual(
    ordered(rows, (row) => row.n, true).map((row) => row.n),
    [10, 2, 1, null],
  );
  assert.deepEqual(
    ordered(["b", "a"], (text) => text, false),
    ["a", "b"],
  );
  assert.deepEqual(
    rows.map((row) => row.n),
    [2, null, 10, 1],
  );
});

test("clicks on a head order upwards, downwards, and not at all", () => {
  const up = clicked(null, "Queued");
  assert.deepEqual(up, { head: "Queued", down: false });
  const down = clicked(up, "Queued");
  assert.deepEqual(down, { head: "Queued", down: true });
  assert.equal(clicked(down, "Queued"), null);
  assert.deepEqual(clicked(down, "State"), { head: "State", down: false });
});
