import assert from "node:assert/strict";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import type { CpuProfile, MemoryProfile, ThreadsUsage, TurnTimes } from "../src/api/api.types";
import { flameGraph, functionsOf, stacksOf, svgOf, ROW, WIDTH } from "../src/profile/flame";
import { compressed, pprofOf } from "../src/profile/pprof";
import { before, structures, sumOf, usesBetween } from "../src/profile/usage";

const thread = (
  id: number,
  name: string,
  cpu_us: number,
  wake_ups: number | null = null,
  turns: TurnTimes[] | null = null,
) => ({ id, name, cpu_us, system_us: 0, no_core_us: cpu_us / 10, wake_ups, turns });
const look = (seconds: number, ...threads: ReturnType<typeof thread>[]): ThreadsUsage => ({
  node: "1",
  node_name: "mq-1",
  uptime_us: seconds * 1e6,
  threads,
  earlier: null,
});
const turns = (...all: [number | null, number][]): TurnTimes[] => all.map(([up_to_ms, count]) => ({ up_to_ms, count }));

test("the use of threads is the difference of two answers by second", () => {
  const first = look(
    10,
    thread(1, "heraldmq", 1e6),
    thread(2, "loop-0", 5e6, 100, turns([0.5, 10], [64, 1])),
    thread(3, "ended", 7),
  );
  const last = look(
    12,
    thread(1, "heraldmq", 1e6),
    thread(2, "loop-0", 6e6, 300, turns([0.5, 30], [4, 2], [64, 1])),
    thread(3, "new", 2e5),
  );
  assert.deepEqual(
    usesBetween(first, last)!.map((one) => [
      one.name,
      one.cpu,
      one.noCore,
      one.wakeUpsPerS,
      one.turnsPerS,
      one.longestTurnMs,
    ]),
    [
      ["loop-0", 0.5, 0.05, 100, 11, 4],
      ["new", 0.1, 0.01, null, null, null],
      ["heraldmq", 0, 0, null, null, null],
    ],
  );
  assert.equal(usesBetween(first, first), null);
  assert.equal(usesBetween(last, first), null);
  const longer = look(13, thread(2, "loop-0", 6e6, 300, turns([0.5, 30], [4, 2], [64, 1], [null, 1])));
  assert.equal(usesBetween(last, longer)![0]!.longestTurnMs, Infinity);
});

test("one answer shows the last minute, or the time since the start", () => {
  const last = look(100, thread(1, "loop-0", 30e6));
  const cpu = (usage: ThreadsUsage) => usesBetween(before(usage), usage)![0]!.cpu;
  assert.equal(cpu(last), 0.3);
  assert.equal(cpu({ ...last, earlier: { uptime_us: 50e6, threads: [thread(1, "loop-0", 5e6)] } }), 0.5);
});

test("the largest structures come first, and what takes nothing is left out", () => {
  const row = (structure: string, bytes: number) => ({ structure, count: null, bytes, how: "counted" as const });
  const profile: MemoryProfile = {
    node: "1",
    node_name: "a",
    resident_bytes: 90,
    allocator: null,
    structures: [row("match_cache", 0), row("connections", 20), row("program_files", 75), row("not_accounted_for", -5)],
  };
  assert.deepEqual(
    structures(profile).map((one) => one.structure),
    ["program_files", "connections", "not_accounted_for"],
  );
  assert.equal(sumOf(profile), 90);
});

const profile = (functions: string[] | null): CpuProfile => ({
  node: "1",
  node_name: "a",
  version: "1",
  hertz: 199,
  lasted_ms: 2000,
  cpu_ms: 100,
  samples: 10,
  lost: 0,
  modules: [],
  functions,
  threads: [
    { id: 7, name: "loop-0" },
    { id: 8, name: "" },
  ],
  places: ["0:1", "0:2", "0:3"],
  stacks: [
    { thread: 0, count: 6, places: [0, 1, 2] },
    { thread: 0, count: 3, places: [1, 1, 2] },
    { thread: 1, count: 1, places: [2] },
  ],
});
const named = ["leaf<T>", "walk", "main"];

test("stacks have the outermost function first; a profile without names, or with a place that it lacks, has none", () => {
  assert.deepEqual(
    stacksOf(profile(named))!.map(({ thread, functions, count }) => [thread, functions.join(), count]),
    [
      ["loop-0", "main,walk,leaf<T>", 6],
      ["loop-0", "main,walk,walk", 3],
      ["thread 8", "main", 1],
    ],
  );
  assert.equal(stacksOf(profile(null)), null);
  assert.equal(stacksOf(profile(["leaf", "walk"])), null);
});

test("a function that calls itself counts once in a stack", () => {
  assert.deepEqual(
    functionsOf(stacksOf(profile(named))!).map(({ name, itself, total }) => [name, itself, total]),
    [
      ["leaf<T>", 6, 6],
      ["walk", 3, 9],
      ["main", 1, 10],
    ],
  );
});

test("functions stand above those that called them, as wide as they were seen", () => {
  const graph = flameGraph("a & b", stacksOf(profile(named))!);
  const of = (name: string) => graph.rectangles.filter((one) => one.tooltip.startsWith(`${name} (`));
  const [all] = of("all threads");
  assert.equal(all!.tooltip, "all threads (10 samples, 100.00 %)");
  assert.deepEqual(
    of("main").map(({ x, y, tooltip }) => [x, (all!.y - y) / ROW, tooltip]),
    [
      [0, 2, "main (9 samples, 90.00 %)"],
      [WIDTH * 0.9, 2, "main (1 sample, 10.00 %)"],
    ],
  );
  // Callees stand in the order of their names, within the one that called them.
  assert.deepEqual(
    of("walk").map(({ x, y }) => [Math.round(x), (all!.y - y) / ROW]),
    [
      [0, 3],
      [WIDTH * 0.6, 4],
    ],
  );
  const svg = svgOf(graph);
  assert.match(svg, /<text x="800"[^>]*>a &amp; b<\/text>/);
  assert.match(svg, /<title>leaf&lt;T&gt; \(6 samples, 60\.00 %\)<\/title>/);
  assert.equal(svg.match(/<rect /g)!.length, graph.rectangles.length + 1);
  assert.doesNotMatch(svg, /script|<leaf/);
  assert.doesNotMatch(svgOf(flameGraph("\u0000<", [])), /\u0000|<</);
});

/** The fields of a message: their numbers, with a number or bytes. */
function fields(bytes: Uint8Array): [number, number | Uint8Array][] {
  const read: [number, number | Uint8Array][] = [];
  let at = 0;
  const varint = () => {
    let [n, scale] = [0, 1];
    for (; ; scale *= 128) {
      const byte = bytes[at++]!;
      n += (byte % 128) * scale;
      if (byte < 128) return n;
    }
  };
  while (at < bytes.length) {
    const key = varint();
    if (key % 8 === 0) read.push([key >> 3, varint()]);
    else {
      const length = varint();
      read.push([key >> 3, bytes.subarray(at, at + length)]);
      at += length;
    }
  }
  return read;
}
const only = (bytes: Uint8Array, field: number) =>
  fields(bytes)
    .filter(([of]) => of === field)
    .map(([, value]) => value);
const packed = (bytes: Uint8Array) => [...bytes].join();

test("the file for pprof has the samples with their functions, innermost first, and their CPU time", async () => {
  const stacks = [
    { thread: "loop-0", functions: ["main", "walk"], count: 3 },
    { thread: "loop-1", functions: ["main"], count: 1_000_000 },
  ];
  const bytes = gunzipSync(Buffer.from(await (await compressed(pprofOf(stacks, 200, 2000))).arrayBuffer()));
  const strings = only(bytes, 6).map((text) => new TextDecoder().decode(text as Uint8Array));
  assert.deepEqual(strings, [
    "",
    "samples",
    "count",
    "cpu",
    "nanoseconds",
    "thread",
    "loop-0",
    "loop-1",
    "main",
    "walk",
  ]);
  const samples = only(bytes, 2) as Uint8Array[];
  assert.equal(samples.length, 2);
  assert.deepEqual(
    samples.map((sample) => packed(only(sample, 1)[0] as Uint8Array)),
    ["2,1", "1"],
  );
  // 5e12 ns, which 32 bits do not have.
  const last = only(samples[1]!, 2)[0] as Uint8Array;
  const split = [...last].findIndex((byte) => byte < 128) + 1;
  assert.equal(fields(Uint8Array.of(8, ...last.subarray(split)))[0]![1], 5e12);
  const functions = (only(bytes, 5) as Uint8Array[]).map((one) => strings[only(one, 2)[0] as number]);
  assert.deepEqual(functions, ["main", "walk"]);
  const locations = (only(bytes, 4) as Uint8Array[]).map((one) => [
    only(one, 1)[0],
    only(only(one, 4)[0] as Uint8Array, 1)[0],
  ]);
  assert.deepEqual(locations, [
    [1, 1],
    [2, 2],
  ]);
  assert.deepEqual([only(bytes, 10), only(bytes, 12)], [[2e9], [5e6]]);
});
