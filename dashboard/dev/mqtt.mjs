// As much of MQTT 5.0 as the seed needs: connect, subscribe, publish with QoS 0 and 1, acknowledge.
import { createConnection } from "node:net";
import { password } from "./cluster.mjs";

const u16 = (n) => Buffer.from([n >> 8, n & 255]);
const text = (s) => {
  const b = Buffer.from(s);
  return Buffer.concat([u16(b.length), b]);
};
const length = (n) => {
  const out = [];
  do {
    out.push((n & 127) | (n > 127 ? 128 : 0));
    n >>= 7;
  } while (n > 0);
  return Buffer.from(out);
};
const packet = (head, ...parts) => {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([head]), length(body.length), body]);
};

export class Client {
  /** `session`: how many seconds it lasts after the connection; `user`; `will`; `acks`: whether it acknowledges. */
  constructor(
    port,
    id,
    { session = 0, clean = session === 0, user, will, keepAlive = 60, receiveMaximum = 65535, acks = true } = {},
  ) {
    this.port = port;
    this.id = id;
    this.acks = acks;
    this.next = 1;
    this.received = 0;
    const properties = Buffer.concat([
      Buffer.from([0x11]),
      Buffer.from([session >>> 24, session >>> 16, session >>> 8, session].map((b) => b & 255)),
      Buffer.from([0x21]),
      u16(receiveMaximum),
    ]);
    const flags = (clean ? 2 : 0) | (will ? 4 | (1 << 3) : 0) | (user ? 0xc0 : 0);
    this.connect = packet(
      0x10,
      text("MQTT"),
      Buffer.from([5, flags]),
      u16(keepAlive),
      length(properties.length),
      properties,
      text(id),
      ...(will ? [Buffer.from([0]), text(will), text("gone")] : []),
      ...(user ? [text(user), text(password(user))] : []),
    );
  }

  open() {
    return new Promise((done, failed) => {
      this.socket = createConnection(this.port, "127.0.0.1", () => this.socket.write(this.connect));
      this.socket.setNoDelay(true);
      this.socket.on("error", (error) => {
        this.closed = true;
        failed(error);
      });
      this.socket.on("close", () => {
        this.closed = true;
        clearInterval(this.pings);
      });
      let rest = Buffer.alloc(0);
      this.socket.on("data", (data) => {
        rest = rest.length ? Buffer.concat([rest, data]) : data;
        for (let got = split(rest); got; got = split(rest)) {
          rest = got.rest;
          this.handle(got.head, got.body, done);
        }
      });
      this.pings = setInterval(() => this.socket.write(Buffer.from([0xc0, 0])), 20_000);
    });
  }

  handle(head, body, connected) {
    const type = head >> 4;
    if (type === 2) connected(this);
    if (type === 3) {
      this.received++;
      const qos = (head >> 1) & 3;
      const at = 2 + body.readUInt16BE(0);
      if (qos === 1 && this.acks) this.socket.write(packet(0x40, body.subarray(at, at + 2)));
    }
  }

  subscribe(filter, qos = 1) {
    this.socket.write(packet(0x82, u16(this.id16()), Buffer.from([0]), text(filter), Buffer.from([qos])));
  }
  publish(topic, payload, { qos = 0, retain = false } = {}) {
    if (this.closed) return;
    this.socket.write(
      packet(
        0x30 | (qos << 1) | (retain ? 1 : 0),
        text(topic),
        ...(qos ? [u16(this.id16())] : []),
        Buffer.from([0]),
        Buffer.from(payload),
      ),
    );
  }
  id16() {
    const id = this.next;
    this.next = id === 65535 ? 1 : id + 1;
    return id;
  }
  close() {
    if (!this.closed) this.socket.end(Buffer.from([0xe0, 0]));
  }
}

function split(data) {
  let size = 0,
    at = 1,
    shift = 0;
  for (; ; at++, shift += 7) {
    if (at >= data.length) return null;
    size |= (data[at] & 127) << shift;
    if (data[at] < 128) break;
  }
  at++;
  return data.length < at + size
    ? null
    : { head: data[0], body: data.subarray(at, at + size), rest: data.subarray(at + size) };
}
