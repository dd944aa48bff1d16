import assert from "node:assert/strict";
import { test } from "node:test";
import type { LiveEvent } from "../src/api/events";
import { add, messages } from "../src/api/marks";

const start = Date.UTC(2026, 0, 1) / 1000;
const event = (type: string, second: number, more: Partial<LiveEvent>): LiveEvent => ({
  type,
  at: new Date((start + second) * 1000).toISOString(),
  node: "1",
  node_name: "mq-1",
  seq: "0",
  client_id: null,
  user: null,
  address: null,
  reason: null,
  topic: null,
  count: null,
  detail: null,
  subject: null,
  ...more,
});
const state = (second: number, node: string, reason: string) =>
  event("node.state", second, { reason, subject: { node: "2", node_name: node, state: reason } });
const told = (marks: ReturnType<typeof add>) => marks.map(({ at, text }) => [at - start, text]);

test("what several nodes tell is one mark, at the first time", () => {
  const marks = add(
    [],
    [state(12, "mq-2", "draining"), state(10, "mq-2", "draining"), state(10, "mq-3", "draining")],
    start + 60,
  );
  assert.deepEqual(told(marks), [
    [10, "mq-2 draining"],
    [10, "mq-3 draining"],
  ]);
  assert.deepEqual(told(add(marks, [state(13, "mq-2", "draining"), state(50, "mq-2", "draining")], start + 60)), [
    [10, "mq-2 draining"],
    [10, "mq-3 draining"],
    [50, "mq-2 draining"],
  ]);
});

test("what is so again soon is a mark of its own", () => {
  const seen = [state(1, "mq-3", "up"), state(5, "mq-3", "draining"), state(9, "mq-3", "up")];
  const marks = add([], seen, start + 60);
  assert.deepEqual(told(marks), [
    [1, "mq-3 up"],
    [5, "mq-3 draining"],
    [9, "mq-3 up"],
  ]);
  const late = [state(1.2, "mq-3", "up"), state(4.9, "mq-3", "draining"), state(9.4, "mq-3", "up")];
  assert.deepEqual(add(marks, late, start + 60), marks, "another node tells the same");
});

test("alarms come and go, other events are left out, and so is what is older than an hour", () => {
  const marks = add(
    [],
    [
      event("alarm.raised", 0, { reason: "disk_full" }),
      event("alarm.raised", 100, { reason: "disk_full" }),
      event("alarm.cleared", 200, { reason: "disk_full" }),
      event("client.connected", 150, { client_id: "a" }),
      event("alarm.raised", 120, { reason: "node_down" }),
    ],
    start + 3650,
  );
  assert.deepEqual(told(marks), [
    [100, "mq-1 disk full"],
    [200, "mq-1 disk full over"],
  ]);
});

test("names of strangers are written out", () => {
  assert.deepEqual(told(add([], [state(0, "a is \u202e", "up")], start)), [[0, "a is \\u{202e} up"]]);
});

test("server-sent events come in pieces", () => {
  const { all, rest } = messages(': alive\n\nevent: hello\ndata: {"step_ms":500}\nid: 1-2-3\n\nevent: node.state\nda');
  assert.deepEqual(all, [
    { type: "message", id: null, data: "" },
    { type: "hello", id: "1-2-3", data: '{"step_ms":500}' },
  ]);
  assert.equal(rest, "event: node.state\nda");
  assert.deepEqual(messages(rest + "ta: {}\r\n\r\n"), {
    all: [{ type: "node.state", id: null, data: "{}" }],
    rest: "",
  });
});
