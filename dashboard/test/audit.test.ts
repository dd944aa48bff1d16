import assert from "node:assert/strict";
import { test } from "node:test";
import {
  actorOf,
  fieldLines,
  fieldSays,
  headSays,
  inWords,
  isLong,
  meansSays,
  targetLink,
  told,
  shownValue,
} from "../src/access/auditwords";

const at = (ms: number) => new Date(ms).toISOString().slice(0, 10);
const field = (name: string, before: string | null, after: string | null) => ({ name, before, after });
const says = (name: string, before: string | null, after: string | null) => fieldSays(field(name, before, after), at);
const now = Date.parse("2026-11-30T10:00:00Z");

test("how much there is of the audit, in a sentence", () => {
  const head = { first: 0, next: 1204, head: "" };
  const last = { actor: "anna", at: "2026-11-30T09:57:00Z" };
  assert.equal(
    inWords(head, "2026-11-24T23:59:59Z", last, now, "UTC"),
    "1,204 entries since 2026-11-24; the last one is by anna, 3 min ago.",
  );
  assert.equal(
    inWords({ ...head, first: 1203 }, null, last, now, "UTC"),
    "1 entry; 1,203 earlier ones are no longer kept; the last one is by anna, 3 min ago.",
  );
  assert.equal(inWords({ ...head, next: 0 }, null, null, now, "UTC"), "The audit has no entries yet.");
  assert.deepEqual([headSays(head), headSays({ ...head, next: 0 })], ["of entry 1,203", "before the first entry"]);
});

test("who it was, and how that was shown", () => {
  const name = (id: string) => ({ "07": "mq-1" })[id] ?? id;
  assert.equal(actorOf({ actor: "anna", means: "person", node: "07" }, name), "anna");
  assert.equal(actorOf({ actor: "", means: "node", node: "07" }, name), "mq-1");
  assert.deepEqual(["token", "file_person", "something_new"].map(meansSays), [
    "key in http.tokenFile",
    "person in http.userFile",
    "something new",
  ]);
});

test("what a field was and is, in a line", () => {
  assert.equal(says("role", "viewer", "operator"), "role: viewer → operator");
  assert.equal(says("note", "", "x"), "note: nothing → x");
  assert.equal(says("password", "set", "set"), "password: replaced (set)");
  assert.equal(says("ends_ms", "", "1795824000000"), "ends: nothing → 2026-11-28");
  assert.equal(shownValue(field("secrets", null, null), "until 1795824000000, good", at), "until 2026-11-28, good");
  assert.equal(says("client_ids", null, "meter-%u"), "client ids: meter-%u");
  assert.equal(says("rules", "a\nb", "a\nc\nd"), "rules: 1 line less, 2 lines more");
  assert.equal(says("rules", null, "a\nb\nc"), "rules: 3 lines");
  assert.equal(says("enabled", "true", null), "enabled: true");
});

test("a record that was added shows no empty fields, and long ones are folded", () => {
  const added = [field("enabled", null, "true"), field("note", null, ""), field("class", null, "")];
  assert.deepEqual(
    told(added).map(({ name }) => name),
    ["enabled"],
  );
  assert.deepEqual(
    told([field("note", "x", ""), field("class", "", null)]).map(({ name }) => name),
    ["note"],
  );
  assert.deepEqual(
    [isLong(added, "enabled: true"), isLong([], "x".repeat(111)), isLong([field("rules", "a", "a\nb")], "rules")],
    [false, true, true],
  );
  assert.deepEqual(fieldLines(field("rules", "a\nb\nc", "a\nx\nc"), at), [
    { mark: "−", line: "b" },
    { mark: "+", line: "x" },
  ]);
  assert.deepEqual(fieldLines(field("note", null, "x"), at), [{ mark: "+", line: "x" }]);
  assert.deepEqual(fieldLines(field("password", "set", "set"), at), []);
});

test("targets lead to their pages", () => {
  const of = (action: string, target: string) => targetLink({ action, target });
  assert.deepEqual(
    [
      of("user.add", "a&b"),
      of("group.change", "meters"),
      of("rules.change", ""),
      of("person.remove", "anna"),
      of("nodes.drain", "nodes/07/drain"),
      of("bans.add", "x"),
      of("login", ""),
      of("nodes.x", ""),
    ],
    [
      "#/user?id=a%26b",
      "#/access?tab=groups",
      "#/access?tab=rules",
      "#/people",
      "#/nodes?node=07",
      "#/bans",
      undefined,
      undefined,
    ],
  );
});
