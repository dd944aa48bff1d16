import assert from "node:assert/strict";
import { test } from "node:test";
import { back, forward } from "../src/api/cursors";

test("cursors of the pages that were passed are kept", () => {
  let cursors: string[] = [];
  cursors = forward(forward(cursors, "second"), "third");
  assert.equal(cursors.at(-1), "third");
  cursors = back(cursors);
  assert.equal(cursors.at(-1), "second");
  assert.deepEqual(back(back(cursors)), []);
});
