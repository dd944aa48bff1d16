// MQTT.js on every feature that it has. Usage: node mqttjs.mjs URL [CA-FILE]
//
// Each feature is a function that throws when the broker does not do its part. The outcome is one JSON
// object on standard output: feature → null, or the error's text.

import mqtt from "mqtt";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

const [url, cafile] = process.argv.slice(2);
const tls = cafile ? { ca: readFileSync(cafile) } : {};
const V = { "3.1": { protocolId: "MQIsdp", protocolVersion: 3 }, "3.1.1": { protocolVersion: 4 }, "5.0": { protocolVersion: 5 } };
const features = [];
const feature = (name, run) => features.push([name, run]);
const inAll = (name, run) => Object.keys(V).forEach((v) => feature(`${name}, ${v}`, (t) => run(t, v)));

// As long as that of the Python tests, and for a whole feature.
const DEADLINE = 60_000, LONGEST = 120_000;
function within(promise, what, ms = DEADLINE) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`no ${what} in ${ms} ms`)), ms); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
// Lets an interval of the protocol pass.
const elapse = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// What a feature gets: names of its own, and clients that end with it.
let count = 0;
class Test {
  constructor() { this.name = `js${process.pid}x${++count}`; this.clients = []; }
  async connect(suffix = "", version = "5.0", options = {}) {
    const client = mqtt.connect(url, { clientId: this.name + suffix, reconnectPeriod: 0, connectTimeout: DEADLINE, ...tls, ...V[version], ...options });
    this.clients.push(client);
    client.got = [];
    client.waiting = [];
    client.on("message", (topic, payload, packet) => {
      const message = { topic, payload: payload.toString(), packet };
      const waiter = client.waiting.shift();
      waiter ? waiter(message) : client.got.push(message);
    });
    client.on("error", (error) => { client.failure = error; });
    client.closed = new Promise((resolve) => client.once("close", resolve));
    client.bye = new Promise((resolve) => client.once("disconnect", resolve));
    client.message = () => within(client.got.length ? Promise.resolve(client.got.shift()) : new Promise((resolve) => client.waiting.push(resolve)), "message");
    client.until = async (payload) => {
      const seen = [];
      for (;;) { const got = await client.message(); if (got.payload === payload) return seen; seen.push(got); }
    };
    client.connack = await within(new Promise((resolve, reject) => { client.once("connect", resolve); client.once("error", reject); }), "CONNACK");
    return client;
  }
  async end() { await Promise.all(this.clients.map((client) => new Promise((resolve) => client.end(true, {}, resolve)))); }
}
const lose = (client) => client.stream.destroy();

inAll("connect", async (t, v) => { assert.equal((await t.connect("", v)).connack.sessionPresent ?? false, false); });

for (const qos of [0, 1, 2]) {
  inAll(`QoS ${qos} both ways`, async (t, v) => {
    const client = await t.connect("", v);
    await client.subscribeAsync(t.name, { qos });
    await client.publishAsync(t.name, "x", { qos });
    const { topic, payload, packet } = await client.message();
    assert.deepEqual([topic, payload, packet.qos, packet.retain], [t.name, "x", qos, false]);
  });
  inAll(`order of 300 messages at QoS ${qos}`, async (t, v) => {
    const client = await t.connect("s", v), publisher = await t.connect("p", v);
    await client.subscribeAsync(t.name, { qos });
    await Promise.all(Array.from({ length: 300 }, (_, n) => publisher.publishAsync(t.name, `${n}`, { qos })));
    for (let n = 0; n < 300; n++) assert.equal((await client.message()).payload, `${n}`);
  });
}

for (const v of ["3.1.1", "5.0"]) {
  feature(`session present, queue of an offline session, ${v}`, async (t) => {
    const keep = { clean: false, properties: v === "5.0" ? { sessionExpiryInterval: 60 } : undefined };
    let client = await t.connect("", v, keep);
    assert.equal(client.connack.sessionPresent, false);
    await client.subscribeAsync(t.name, { qos: 2 });
    await client.endAsync();
    const publisher = await t.connect("p", v);
    for (const n of [1, 2, 3]) await publisher.publishAsync(t.name, `${n}`, { qos: 1 });
    client = await t.connect("", v, keep);
    assert.equal(client.connack.sessionPresent, true);
    for (const n of [1, 2, 3]) assert.equal((await client.message()).payload, `${n}`);
    await client.endAsync();
    assert.equal((await t.connect("", v, { clean: true })).connack.sessionPresent, false);
  });
}

inAll("retained messages", async (t, v) => {
  const client = await t.connect("", v);
  await client.publishAsync(`${t.name}/a`, "kept", { qos: 1, retain: true });
  await client.subscribeAsync(`${t.name}/+`, { qos: 1 });
  const { payload, packet } = await client.message();
  assert.deepEqual([payload, packet.retain], ["kept", true]);
  await client.publishAsync(`${t.name}/a`, "", { qos: 1, retain: true });
  await client.publishAsync(`${t.name}/b`, "end", { qos: 1 });
  await client.until("end");
  const late = await t.connect("late", v);
  await late.subscribeAsync(`${t.name}/#`, { qos: 1 });
  await client.publishAsync(`${t.name}/b`, "end", { qos: 1 });
  assert.deepEqual(await late.until("end"), []);
});

inAll("will", async (t, v) => {
  const watcher = await t.connect("w", v);
  await watcher.subscribeAsync(t.name, { qos: 1 });
  lose(await t.connect("", v, { will: { topic: t.name, payload: "bye", qos: 1 } }));
  assert.equal((await watcher.message()).payload, "bye");
});

inAll("keep-alive by PINGREQ", async (t, v) => {
  const client = await t.connect("", v, { keepalive: 5 });
  await elapse(9000);
  assert.equal(client.connected, true);
});

inAll("unsubscribe", async (t, v) => {
  const client = await t.connect("", v);
  await client.subscribeAsync([t.name, `${t.name}/end`], { qos: 1 });
  await client.unsubscribeAsync(t.name);
  await client.publishAsync(t.name, "x", { qos: 1 });
  await client.publishAsync(`${t.name}/end`, "end", { qos: 1 });
  assert.deepEqual(await client.until("end"), []);
});

inAll("takeover", async (t, v) => {
  const old = await t.connect("", v);
  await t.connect("", v);
  if (v === "5.0") assert.equal((await within(old.bye, "DISCONNECT")).reasonCode, 0x8e);
  await within(old.closed, "end of the connection");
});

inAll("large messages", async (t, v) => {
  const client = await t.connect("", v), payload = "0123456789".repeat(20000);
  await client.subscribeAsync(t.name, { qos: 1 });
  await client.publishAsync(t.name, payload, { qos: 1 });
  assert.equal((await client.message()).payload, payload);
});

feature("session expiry", async (t) => {
  await (await t.connect("", "5.0", { clean: false, properties: { sessionExpiryInterval: 1 } })).endAsync();
  await elapse(4000);
  assert.equal((await t.connect("", "5.0", { clean: false })).connack.sessionPresent, false);
});

feature("retain handling, retain as published", async (t) => {
  const client = await t.connect();
  await client.publishAsync(t.name, "kept", { qos: 1, retain: true });
  const sent = async (rh) => {
    await client.subscribeAsync(t.name, { qos: 1, rh });
    await client.publishAsync(t.name, "end", { qos: 1 });
    return (await client.until("end")).map((m) => m.payload);
  };
  assert.deepEqual(await sent(2), []);
  assert.deepEqual(await sent(1), []);
  assert.deepEqual(await sent(0), ["kept"]);
  await client.subscribeAsync(t.name, { qos: 1, rh: 2, rap: true });
  await client.publishAsync(t.name, "flagged", { qos: 1, retain: true });
  assert.equal((await client.message()).packet.retain, true);
});

feature("will delay, cancelled by reconnecting", async (t) => {
  const watcher = await t.connect("w");
  await watcher.subscribeAsync(t.name, { qos: 1 });
  const keep = { clean: false, properties: { sessionExpiryInterval: 60 } };
  const will = { topic: t.name, payload: "bye", qos: 1, properties: { willDelayInterval: 4, contentType: "t" } };
  const start = Date.now();
  lose(await t.connect("1", "5.0", { ...keep, will }));
  const { payload, packet } = await watcher.message();
  assert.deepEqual([payload, packet.properties.contentType], ["bye", "t"]);
  assert.ok(Date.now() - start >= 3900);
  lose(await t.connect("2", "5.0", { ...keep, will }));
  const back = await t.connect("2", "5.0", keep);
  await elapse(4400);
  await back.publishAsync(t.name, "end", { qos: 1 });
  assert.deepEqual(await watcher.until("end"), []);
});

feature("topic aliases, inbound", async (t) => {
  const client = await t.connect("", "5.0", { autoAssignTopicAlias: true });
  await client.subscribeAsync(t.name, { qos: 1 });
  for (const n of [1, 2, 3]) await client.publishAsync(t.name, `${n}`, { qos: 1, properties: n === 1 ? { topicAlias: 1 } : {} });
  for (const n of [1, 2, 3]) { const got = await client.message(); assert.deepEqual([got.topic, got.payload], [t.name, `${n}`]); }
});

feature("topic aliases, outbound", async (t) => {
  const client = await t.connect("", "5.0", { properties: { topicAliasMaximum: 5 } });
  await client.subscribeAsync(`${t.name}/#`, { qos: 1 });
  for (let n = 0; n < 20; n++) await client.publishAsync(`${t.name}/${n % 8}`, `${n}`, { qos: 1 });
  for (let n = 0; n < 20; n++) { const got = await client.message(); assert.deepEqual([got.topic, got.payload], [`${t.name}/${n % 8}`, `${n}`]); }
});

feature("subscription identifiers", async (t) => {
  const client = await t.connect();
  await client.subscribeAsync(`${t.name}/#`, { qos: 0, properties: { subscriptionIdentifier: 1 } });
  await client.subscribeAsync(`${t.name}/a`, { qos: 2, properties: { subscriptionIdentifier: 2 } });
  await client.publishAsync(`${t.name}/a`, "x", { qos: 2 });
  const { packet } = await client.message();
  assert.deepEqual([...packet.properties.subscriptionIdentifier].sort(), [1, 2]);
  assert.equal(packet.qos, 2);
});

feature("no local", async (t) => {
  const client = await t.connect(), other = await t.connect("o");
  await client.subscribeAsync(t.name, { qos: 1, nl: true });
  await client.publishAsync(t.name, "own", { qos: 1 });
  await other.publishAsync(t.name, "other", { qos: 1 });
  assert.equal((await client.message()).payload, "other");
});

feature("message expiry, remaining interval", async (t) => {
  const keep = { clean: false, properties: { sessionExpiryInterval: 60 } };
  const first = await t.connect("", "5.0", keep);
  await first.subscribeAsync(t.name, { qos: 1 });
  await first.endAsync();
  const publisher = await t.connect("p");
  await publisher.publishAsync(t.name, "dies", { qos: 1, properties: { messageExpiryInterval: 1 } });
  await publisher.publishAsync(t.name, "lives", { qos: 1, properties: { messageExpiryInterval: 100 } });
  await elapse(1500);
  const { payload, packet } = await (await t.connect("", "5.0", keep)).message();
  assert.equal(payload, "lives");
  const left = packet.properties.messageExpiryInterval;
  assert.ok(left > 0 && left <= 99, `${left}`);
});

feature("request and response", async (t) => {
  const asker = await t.connect("q"), answerer = await t.connect("r");
  await answerer.subscribeAsync(`${t.name}/do`, { qos: 1 });
  await asker.subscribeAsync(`${t.name}/reply`, { qos: 1 });
  await asker.publishAsync(`${t.name}/do`, "2+2", { qos: 1, properties: { responseTopic: `${t.name}/reply`, correlationData: Buffer.from([0, 7]) } });
  const { properties } = (await answerer.message()).packet;
  await answerer.publishAsync(properties.responseTopic, "4", { qos: 1, properties: { correlationData: properties.correlationData } });
  const got = await asker.message();
  assert.equal(got.payload, "4");
  assert.deepEqual([...got.packet.properties.correlationData], [0, 7]);
});

feature("user properties, content type, payload format", async (t) => {
  const client = await t.connect();
  await client.subscribeAsync(t.name, { qos: 1 });
  await client.publishAsync(t.name, "é", { qos: 1, properties: { userProperties: { z: ["1", "3"], a: "2" }, contentType: "text/plain", payloadFormatIndicator: true } });
  const { properties } = (await client.message()).packet;
  assert.deepEqual(properties.userProperties.z, ["1", "3"]);
  assert.deepEqual([properties.userProperties.a, properties.contentType, properties.payloadFormatIndicator], ["2", "text/plain", true]);
});

feature("assigned client identifier", async (t) => {
  const client = await t.connect("", "5.0", { clientId: "" });
  assert.ok(client.connack.properties.assignedClientIdentifier);
});

feature("maximum packet size", async (t) => {
  const client = await t.connect("", "5.0", { properties: { maximumPacketSize: 200 } }), other = await t.connect("o");
  await client.subscribeAsync(t.name, { qos: 1 });
  await other.publishAsync(t.name, "x".repeat(500), { qos: 1 });
  await other.publishAsync(t.name, "small", { qos: 1 });
  assert.equal((await client.message()).payload, "small");
});

feature("receive maximum", async (t) => {
  let open = 0, most = 0;
  const client = await t.connect("", "5.0", {
    properties: { receiveMaximum: 2 },
    // The acknowledgement goes out when done() is called.
    customHandleAcks: (_topic, _message, _packet, done) => { most = Math.max(most, ++open); setTimeout(() => { open--; done(null, 0); }, 20); },
  });
  const other = await t.connect("o");
  await client.subscribeAsync(t.name, { qos: 1 });
  for (let n = 0; n < 10; n++) await other.publishAsync(t.name, `${n}`, { qos: 1 });
  for (let n = 0; n < 10; n++) assert.equal((await client.message()).payload, `${n}`);
  assert.ok(most <= 2, `${most} in flight`);
});

feature("shared subscriptions", async (t) => {
  const members = [await t.connect("1"), await t.connect("2")], publisher = await t.connect("p");
  const seen = [];
  const all = new Promise((resolve) => members.forEach((m) => m.on("message", (_t, payload) => { seen.push(+payload); if (seen.length === 20) resolve(); })));
  for (const member of members) await member.subscribeAsync(`$share/g/${t.name}`, { qos: 1 });
  for (let n = 0; n < 20; n++) await publisher.publishAsync(t.name, `${n}`, { qos: 1 });
  await within(all, "all messages");
  assert.deepEqual(seen.sort((a, b) => a - b), Array.from({ length: 20 }, (_, n) => n));
});

feature("reason codes of SUBACK and UNSUBACK", async (t) => {
  const client = await t.connect();
  const failed = await client.subscribeAsync("$share/g", { qos: 0 }).then(() => null, (error) => error);
  assert.ok(failed, "the filter was granted");
  const suback = new Promise((resolve) => client.once("packetreceive", resolve));
  await client.unsubscribeAsync(`${t.name}/none`);
  assert.deepEqual((await suback).granted ?? (await suback).reasonCode, [0x11]);
});

feature("refused: enhanced authentication", async (t) => {
  const error = await t.connect("", "5.0", { properties: { authenticationMethod: "x" } }).then(() => null, (e) => e);
  assert.equal(error?.code, 0x8c, `${error}`);
});

feature("$SYS topics", async (t) => {
  const client = await t.connect();
  await client.subscribeAsync("$SYS/broker/version", { qos: 0 });
  assert.equal((await client.message()).packet.retain, true);
});

const outcome = {};
// A few at a time: most of them wait.
const queue = [...features];
await Promise.all(Array.from({ length: 6 }, async () => {
  for (let next; (next = queue.shift()); ) {
    const [name, run] = next, test = new Test();
    try {
      await within(run(test), "end of the feature", LONGEST);
      outcome[name] = null;
    } catch (error) {
      outcome[name] = `${error?.message ?? error}`;
    }
    await test.end();
  }
}));
console.log(JSON.stringify(outcome));
process.exit(0);
