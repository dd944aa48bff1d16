// A CPU profile in the format of pprof (github.com/google/pprof, `proto/profile.proto`), with the fields that `heraldmq profile cpu` writes.
import type { Stack } from "./flame";

/** Fields of a message of protocol buffers: numbers, and what has a length. */
class Message {
  private bytes: number[] = [];

  private varint(n: number) {
    // Values of ns go beyond 2^32, where shifts fail.
    for (; n >= 128; n = Math.floor(n / 128)) this.bytes.push((n % 128) + 128);
    this.bytes.push(n);
  }

  /** A field that is 0 is left out. */
  number(field: number, n: number): this {
    if (n === 0) return this;
    this.varint(field * 8);
    this.varint(n);
    return this;
  }

  block(field: number, content: Uint8Array | Message): this {
    const bytes = content instanceof Message ? content.bytes : content;
    this.varint(field * 8 + 2);
    this.varint(bytes.length);
    for (const byte of bytes) this.bytes.push(byte);
    return this;
  }

  numbers(field: number, all: number[]): this {
    const packed = new Message();
    for (const n of all) packed.varint(n);
    return this.block(field, packed);
  }

  done(): Uint8Array<ArrayBuffer> {
    return Uint8Array.from(this.bytes);
  }
}

/** Numbers from `first` on for what comes for the first time. */
function numbering(first: number) {
  const known = new Map<string, number>();
  return { known, of: (name: string) => known.get(name) ?? known.set(name, first + known.size).get(name)! };
}

/** The file without its compression. `hertz`: samples for each second of CPU time. */
export function pprofOf(stacks: Stack[], hertz: number, lastedMs: number): Uint8Array<ArrayBuffer> {
  const strings = numbering(0);
  // The first string is empty.
  strings.of("");
  const places = numbering(1);
  const valueType = (kind: string, unit: string) =>
    new Message().number(1, strings.of(kind)).number(2, strings.of(unit));
  const period = Math.floor(1e9 / Math.max(1, hertz));
  const profile = new Message().block(1, valueType("samples", "count")).block(1, valueType("cpu", "nanoseconds"));
  for (const { thread, functions, count } of stacks) {
    const label = new Message().number(1, strings.of("thread")).number(2, strings.of(thread));
    // The innermost first.
    const locations = functions.map((name) => places.of(name)).reverse();
    profile.block(
      2,
      new Message()
        .numbers(1, locations)
        .numbers(2, [count, count * period])
        .block(3, label),
    );
  }
  for (const [name, id] of places.known) {
    profile.block(4, new Message().number(1, id).block(4, new Message().number(1, id)));
    profile.block(5, new Message().number(1, id).number(2, strings.of(name)).number(3, strings.of(name)));
  }
  const encoder = new TextEncoder();
  for (const text of strings.known.keys()) profile.block(6, encoder.encode(text));
  return profile
    .number(10, lastedMs * 1e6)
    .block(11, valueType("cpu", "nanoseconds"))
    .number(12, period)
    .done();
}

export const compressed = (bytes: Uint8Array<ArrayBuffer>): Promise<Blob> =>
  new Response(new Blob([bytes]).stream().pipeThrough(new CompressionStream("gzip"))).blob();
