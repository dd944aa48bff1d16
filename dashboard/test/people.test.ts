import assert from "node:assert/strict";
import { test } from "node:test";
import type { KeyRow, PersonRow } from "../src/api/api.types";
import {
  addKey,
  addPerson,
  hasEnded,
  inWords,
  newPerson,
  overlaps,
  passwordOf,
  personFields,
  rotateKey,
  setPerson,
} from "../src/access/peoplewords";
import { changes, effectsSay } from "../src/access/words";

const now = Date.parse("2026-11-24T10:00:00Z");
const person = (more: Partial<PersonRow> = {}): PersonRow => ({
  name: "anna",
  source: "store",
  revision: 7,
  role: "administrator",
  audits: false,
  enabled: true,
  has_password: true,
  must_change: false,
  note: "",
  ...more,
});
const key = (more: Partial<KeyRow> = {}): KeyRow => ({
  id: "5f3a90c2",
  name: "ci",
  source: "store",
  revision: 8,
  role: "administrator",
  audits: false,
  created_at: "2026-11-01T00:00:00Z",
  ends_at: null,
  old_secret_ends_at: null,
  ...more,
});

test("who can change everything, in a sentence", () => {
  assert.equal(
    inWords(
      [person(), person({ role: "viewer" }), person({ role: "operator" })],
      [key(), key({ role: "viewer" })],
      now,
    ),
    "3 people, 2 keys; 2 can change everything.",
  );
  assert.equal(
    inWords([person({ enabled: false })], [key({ ends_at: "2026-11-24T10:00:00Z" })], now),
    "1 person, 1 key; none of them can change everything.",
  );
  assert.equal(
    inWords([person({ has_password: false }), person()], [], now, true),
    "At least 2 people, 0 keys; 1 can change everything.",
  );
  assert.deepEqual(
    ["2026-11-24T09:59:59Z", "2026-11-24T10:00:01Z", null].map((ends_at) => hasEnded(key({ ends_at }), now)),
    [true, false, false],
  );
});

test("what a change of a person would do names no clients", () => {
  const says = (would: "create" | "replace" | "remove" | "keep", deed?: string) =>
    effectsSay({ would, clients_ended: 0, at_least: false }, "person", deed, false);
  assert.deepEqual(
    [says("create"), says("remove"), says("replace", "disables the person"), says("keep")],
    [
      "Adds the person.",
      "Removes the person.",
      "Disables the person.",
      "Changes nothing: the person is like this already.",
    ],
  );
});

test("commands have what is changed, and never a secret", () => {
  assert.equal(addPerson("ben", newPerson, false), "heraldmq person add --role=viewer -- ben");
  assert.equal(
    addPerson(
      "--url=http://x",
      { ...newPerson, role: "operator", audits: true, must_change: false, note: "it's" },
      true,
    ),
    "heraldmq person add --generate --keep --role=operator --audits=true --note='it'\\''s' -- '--url=http://x'",
  );
  const before = personFields(person({ note: "n", audits: true }));
  assert.deepEqual(before, { role: "administrator", audits: true, enabled: true, must_change: false, note: "n" });
  assert.equal(
    setPerson("anna", changes(before, { ...before, note: "", audits: false })),
    "heraldmq person set --audits=false --note='' -- anna",
  );
  assert.equal(
    setPerson("anna", changes(before, { ...before, role: "viewer" })),
    "heraldmq person set --role=viewer -- anna",
  );
  assert.equal(passwordOf("anna", false, true), "heraldmq person passwd --keep -- anna");
  assert.equal(passwordOf("anna", true, false), "heraldmq person passwd --generate -- anna");
  assert.equal(
    addKey({ name: "ci", role: "administrator", audits: true }, 90),
    "heraldmq key add --name=ci --role=administrator --audits --for=90d",
  );
  assert.equal(addKey({ name: "a b", role: null, audits: false }, null), "heraldmq key add --name='a b'");
  assert.deepEqual(
    overlaps.map(([seconds]) => rotateKey("5f3a90c2", seconds)),
    ["0s", "1h", "1d", "7d", "30d"].map((option) => `heraldmq key rotate --overlap=${option} -- 5f3a90c2`),
  );
});
