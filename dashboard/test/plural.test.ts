// Numbers with what they count are written by `plural`, which knows that one node is not "1 nodes".
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

const nouns =
  "acknowledgement|alarm|answer|ban|byte|client|connection|core|day|drop|event|filter|group|hour|level|listener|member|message|minute|node|packet|property|publisher|queue|receiver|request|row|rule|second|session|setting|shard|slot|subscriber|subscription|time|topic|user|voter|will";
const many = nouns
  .split("|")
  .map((noun) => noun.replace(/y$/, "ie") + "s")
  .join("|");
const rules: [what: string, pattern: RegExp][] = [
  [
    "a number before a plural that `plural` has not made",
    new RegExp(`(?<!["'])\\} (?:(?:more|other|queued|durable|connected) )?(?:${many})\\b(?!=)`, "g"),
  ],
  [
    "a verb behind `plural`, which has to be in it",
    /plural\((?:[^()]|\([^()]*\))*\)\} (?:are|have|need|wait|count|differ|were)\b/g,
  ],
  ["a choice of a singular that `plural` makes", /=== 1 \? "(?:is|are|has|have|needs|need|counts|count)"/g],
];
/** What counts nothing: a noun behind a sum that has its own, and a verb behind names. */
const meant: [file: string, found: string][] = [
  ["pages/queues.tsx", "} messages"],
  ["pages/nodes.tsx", '=== 1 ? "is"'],
];

const findings = (text: string, name = "") =>
  rules.flatMap(([what, pattern]) =>
    [...text.matchAll(pattern)]
      .filter(([found]) => !meant.some(([file, text]) => file === name && text === found))
      .map(([found]) => `${what}: ${found}`),
  );

test("no number stands before a noun without `plural`", () => {
  const files = readdirSync("src", { recursive: true })
    .map(String)
    .filter((name) => /\.tsx?$/.test(name) && !name.endsWith("api.types.ts"));
  assert.ok(files.length > 40);
  assert.deepEqual(
    files.flatMap((name) => findings(readFileSync(`src/${name}`, "utf8"), name).map((one) => `${name}: ${one}`)),
    [],
  );
});

test("what is looked for is found", () => {
  for (const text of [
    "`All ${count(n)} nodes are up`",
    "<p>{count(most)} receivers are shown</p>",
    "`${rows.length} more sessions`",
    '`${plural(n, "alarm")} need attention`',
    '`${plural(f(n), "alarm")} are raised`',
    '{n === 1 ? "is" : "are"}',
  ])
    assert.equal(findings(text).length, 1, text);
  for (const text of ['`${plural(n, "node is", "nodes are")} up`', "`${name} leads shards`", "`${name} is up`"])
    assert.deepEqual(findings(text), [], text);
});
