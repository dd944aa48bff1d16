import assert from "node:assert/strict";
import { test } from "node:test";
import type { AccessGroup, AccessUser } from "../src/api/api.types";
import {
  addGroup,
  addUser,
  changes,
  difference,
  effectsSay,
  groupFields,
  isReachable,
  linesOf,
  mistakesOf,
  newGroup,
  newUser,
  rulesOf,
  setGroup,
  setUser,
  standing,
  userFields,
} from "../src/access/words";

const user = (more: Partial<AccessUser> = {}): AccessUser => ({
  name: "ann",
  revision: 7,
  proofs: ["password"],
  ...newUser,
  ...more,
});
const group = (name: string, more: Partial<AccessGroup> = {}): AccessGroup => ({
  name,
  revision: 3,
  ...newGroup,
  ...more,
});

test("how current a copy is", () => {
  const status = { users: 218, groups: 1, lines: 12, revision: 1841, stale_s: 0, standing: "confirmed" } as const;
  assert.equal(standing(status), "218 users and 1 group; this node's copy is current.");
  assert.equal(
    standing({ ...status, stale_s: 250 }),
    "218 users and 1 group; for 4 min 10 s this node has not known whether its copy is current.",
  );
  assert.equal(
    standing({ ...status, standing: "unconfirmed", stale_s: 5 }),
    "218 users and 1 group; this node does not know yet whether its copy is current, and lets no user in until then.",
  );
  assert.equal(standing({ ...status, standing: "unused" }), "No user, group or rule was ever added.");
});

test("what a change would do, in a sentence", () => {
  const says = (would: "create" | "replace" | "remove" | "keep", clients_ended: number | null, at_least = false) =>
    effectsSay({ would, clients_ended, at_least }, "user");
  assert.equal(says("create", 0), "Adds the user; no client is disconnected.");
  assert.equal(says("replace", 3), "Replaces the user; 3 clients are disconnected.");
  assert.equal(says("remove", 1), "Removes the user; 1 client is disconnected.");
  assert.equal(says("remove", 10_000, true), "Removes the user; at least 10,000 clients are disconnected.");
  assert.equal(
    says("replace", null),
    "Replaces the user; the number of clients that are disconnected is not known, because a node did not answer.",
  );
  assert.equal(says("keep", 0), "Changes nothing: the user is like this already.");
  assert.equal(says("keep", 2), "Changes nothing: the user is like this already; 2 clients are disconnected.");
  assert.equal(
    effectsSay({ would: "replace", clients_ended: 0, at_least: false }, "user", "disables the user"),
    "Disables the user; no client is disconnected.",
  );
});

test("commands have what is changed, and never a password", () => {
  assert.equal(addUser("ann", newUser, false), "heraldmq user add -- ann");
  assert.equal(
    addUser("meter-17", { ...newUser, client_ids: "meter-17" }, true),
    "heraldmq user add --generate --client-ids=meter-17 -- meter-17",
  );
  assert.equal(
    addUser("--url=http://x", { ...newUser, groups: ["a", "b c"] }, false),
    "heraldmq user add --group=a --group='b c' -- '--url=http://x'",
  );
  const before = userFields(user({ groups: ["a"], class: "gateways", rules: ["allow publish a"], note: "n" }));
  const set = (after: object) => setUser("ann", changes(before, { ...before, ...after }));
  assert.equal(set({ class: "devices" }), "heraldmq user set --class=devices -- ann");
  assert.equal(
    set({ class: null, note: "", groups: [], rules: [] }),
    "heraldmq user set --no-groups --no-rules --class='' --note='' -- ann",
  );
  assert.equal(
    set({ superuser: true, ends_at: "2026-12-31T00:00:00Z" }),
    "heraldmq user set --superuser=true --ends-at=2026-12-31T00:00:00Z -- ann",
  );
  assert.equal(
    set({ rules: ["allow publish a", "# it's", "deny all"] }),
    "heraldmq user set --rule='allow publish a' --rule='# it'\\''s' --rule='deny all' -- ann",
  );
  assert.equal(
    addGroup("ops", { ...newGroup, priority: -5, includes: ["a"] }),
    "heraldmq user-group add --priority='-5' --include=a -- ops",
  );
  const ops = groupFields(group("ops", { includes: ["a"], class: "x" }));
  assert.equal(
    setGroup("ops", changes(ops, { ...ops, includes: [], class: null })),
    "heraldmq user-group set --no-includes --class='' -- ops",
  );
});

test("fields that this page does not know stay when a record is put back", () => {
  assert.deepEqual(userFields({ ...user(), quota: 5 } as AccessUser), { ...newUser, quota: 5 });
  assert.deepEqual(groupFields(group("a", { priority: 2 })), { ...newGroup, priority: 2 });
});

test("lines keep their numbers, and mistakes their lines", () => {
  assert.deepEqual(linesOf(""), []);
  assert.deepEqual(linesOf("\n \n"), []);
  assert.deepEqual(linesOf("\n# a\r\n\r\nallow all\n\n"), ["", "# a", "", "allow all"]);
  const problem = {
    type: "",
    title: "",
    status: 400,
    detail: "",
    instance: "",
    mistakes: [{ line: 3, reason: "no" }, { line: "4" }, null],
  };
  assert.deepEqual(mistakesOf(problem), [{ line: 3, reason: "no" }]);
  assert.deepEqual(mistakesOf({ ...problem, mistakes: "x" }), []);
  assert.deepEqual(mistakesOf(null), []);
});

test("the difference has the lines that change", () => {
  const before = ["a", "b", "b", "c"];
  for (const [after, expected] of [
    [before, null],
    [["a", "b", "c"], { from: 3, removed: ["b"], added: [] }],
    [["a", "b", "b", "b", "c"], { from: 4, removed: [], added: ["b"] }],
    [["a", "x", "b", "c"], { from: 2, removed: ["b"], added: ["x"] }],
    [[], { from: 1, removed: before, added: [] }],
  ] as const)
    assert.deepEqual(difference(before, [...after]), expected);
});

test("rules stand in the order in which the broker judges them", () => {
  const groups = new Map(
    [
      group("a", { rules: ["a1"], includes: ["z"] }),
      group("b", { rules: ["b1", "b2"], includes: ["a"], priority: 5 }),
      group("c", { rules: ["c1"] }),
      group("z", { rules: ["z1"], includes: ["far"] }),
      group("far", { rules: ["far1"] }),
    ].map((one) => [one.name, one]),
  );
  // Includes reach one level, and a group counts where it comes first.
  const rules = rulesOf(user({ rules: ["own"], groups: ["a", "b", "c", "gone"] }), groups);
  assert.deepEqual(
    rules.map(({ group: of, number, text }) => [number, of, text]),
    [
      [1, null, "own"],
      [2, "b", "b1"],
      [3, "b", "b2"],
      [4, "a", "a1"],
      [5, "z", "z1"],
      [6, "c", "c1"],
    ],
  );
});

test("names that a path cannot name", () => {
  for (const name of ["", ".", ".."]) assert.equal(isReachable(name), false, name);
  for (const name of ["ann", "...", "a/b", "%2e"]) assert.equal(isReachable(name), true, name);
});
