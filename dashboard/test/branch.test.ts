import assert from "node:assert/strict";
import { test } from "node:test";
import { branchOf } from "../src/navigation/branch";

/** Pages of `size` topics each, of `total` in all. */
const pages = (total: number, size: number) => async (filter: string, after: string | undefined) => {
  assert.equal(filter, "a/#");
  const first = Number(after ?? 0);
  const items = Array.from({ length: Math.min(size, total - first) }, (_, n) => ({ topic: `a/${first + n}` }));
  return { items, next: first + size < total ? String(first + size) : null };
};

test("a branch is read page by page, up to a number", async () => {
  assert.deepEqual(await branchOf("a", 10, pages(3, 2)), { topics: ["a/0", "a/1", "a/2"], more: false });
  assert.deepEqual(await branchOf("a", 3, pages(3, 2)), { topics: ["a/0", "a/1", "a/2"], more: false });
  const cut = await branchOf("a", 3, pages(9, 2));
  assert.deepEqual([cut.topics.length, cut.more], [3, true]);
  assert.deepEqual(await branchOf("a", 3, pages(0, 2)), { topics: [], more: false });
});
