import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { commandOf, json, quote } from "../src/words/command";

const words = [
  "press-17",
  "plant/4/state",
  "it's",
  "$(reboot)",
  "`id`",
  "a; rm -rf /",
  "\\",
  "'; id #",
  "-q",
  "--url=http://x",
  "a b",
  "\u202etxt.exe",
  "'\u202e\\",
  "\n",
  "größe",
  "",
];

test("a shell reads each word as it was", () => {
  for (const word of words) {
    const read = execFileSync("bash", ["-c", `printf %s ${quote(word)}`], {
      encoding: "utf8",
      env: { ...process.env, LC_ALL: "C.UTF-8" },
    });
    assert.equal(read, word);
  }
});

test("nothing in a command is hidden", () => {
  assert.equal(quote("\u202etxt"), "$'\\u202etxt'");
  assert.equal(json({ id: "\u202e" }), '{"id":"\\u202e"}');
  assert.deepEqual(JSON.parse(json(words)), words);
});

test("no name is read as an option", () => {
  assert.equal(commandOf("client", ["--url=http://evil.example"]), "heraldmq client -- '--url=http://evil.example'");
  assert.equal(commandOf("clients", ["-x"], { state: "away" }), "heraldmq clients --state=away -- '-x'");
  assert.equal(commandOf("clients", [undefined], { state: undefined }), "heraldmq clients");
  assert.equal(
    commandOf("match", ["a b"], { qos: "1", publisher: "--url=x", why: "it's" }),
    "heraldmq match --qos=1 --publisher='--url=x' --why='it'\\''s' -- 'a b'",
  );
});

test("an option is repeated, or stands alone", () => {
  assert.equal(
    commandOf("user set", ["ann"], { group: ["a", "b c"], class: [""], "no-rules": true, note: "" }),
    "heraldmq user set --group=a --group='b c' --class='' --no-rules -- ann",
  );
});

test("a command names the broker that serves the page", () => {
  assert.equal(
    commandOf("client", ["-x"], { state: "away" }, "http://10.0.0.7:8091/dashboard/"),
    "heraldmq client --url=http://10.0.0.7:8091/dashboard --state=away -- '-x'",
  );
  assert.equal(commandOf("nodes", [], {}, "https://mq.example/"), "heraldmq nodes --url=https://mq.example");
  // Also where the command line asks by itself: a context of the operator may name another broker.
  for (const url of ["http://127.0.0.1:8091", "http://localhost:8091"])
    assert.equal(commandOf("nodes", [], {}, `${url}/#/nodes`), `heraldmq nodes --url=${url}`);
});
