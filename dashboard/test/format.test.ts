import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bytes,
  count,
  duration,
  middle,
  milliseconds,
  plural,
  rate,
  share,
  tick,
  time,
  visible,
} from "../src/words/format";

function table<Input>(name: string, say: (input: Input) => string, rows: [Input, string][]) {
  test(name, () => {
    for (const [input, expected] of rows) assert.equal(say(input), expected, String(input));
  });
}

table("counts", count, [
  [0, "0"],
  [999, "999"],
  [1_234_567, "1,234,567"],
]);
table<number | null>("what is not known", (n) => [count(n), rate(n), bytes(n), share(n), duration(n)].join(" "), [
  [null, "– – – – –"],
]);
table("measured times", milliseconds, [
  [0, "0.00 ms"],
  [0.42, "0.42 ms"],
  [1.161, "1.2 ms"],
  [31.25, "31 ms"],
  [999.7, "1.0 s"],
  [64_000, "64 s"],
]);
table("rates", rate, [
  [0, "0"],
  [0.4, "0.40"],
  [9.99, "9.99"],
  [9.999, "10"],
  [13.4, "13"],
  [12_041, "12,041"],
]);
table("bytes", bytes, [
  [0, "0 B"],
  [114, "114 B"],
  [999, "999 B"],
  [1000, "1.0 kB"],
  [1_277_568, "1.3 MB"],
  [81_200_000_000, "81.2 GB"],
  [412_000_000, "412 MB"],
  [999_960_000, "1.0 GB"],
]);
table("shares", share, [
  [0, "0 %"],
  [0.0002, "<0.1 %"],
  [0.0034, "0.3 %"],
  [0.0996, "10 %"],
  [0.314, "31 %"],
  [1.5, "150 %"],
]);
table("ticks of an axis", tick, [
  [0, "0"],
  [0.2, "0.2"],
  [20, "20"],
  [12_000, "12 k"],
  [1_500_000, "1.5 M"],
  [2e9, "2 G"],
]);
table("durations", duration, [
  [0, "0 s"],
  [0.4, "0 s"],
  [48, "48 s"],
  [60, "1 min"],
  [250, "4 min 10 s"],
  [15_120, "4 h 12 min"],
  [86_400, "1 d"],
  [180_000, "2 d 2 h"],
  [-5, "0 s"],
]);
table("counted nouns", (n: number) => plural(n, "node"), [
  [0, "0 nodes"],
  [1, "1 node"],
  [1200, "1,200 nodes"],
]);

test("times", () => {
  const now = Date.parse("2026-11-24T10:12:03Z");
  for (const [at, expected] of [
    ["2026-11-24T10:12:03.441Z", "10:12:03"],
    ["2026-11-23T10:12:03Z", "23 Nov 10:12"],
    ["2025-11-24T10:12:03Z", "24 Nov 2025"],
  ] as const)
    assert.equal(time(at, now, "UTC"), expected);
});

table("foreign texts", visible, [
  ["press-17", "press-17"],
  ["<img src=x>", "<img src=x>"],
  ["a\u202eb", "a\\u{202e}b"],
  ["a\u0000\n", "a\\u{0}\\u{a}"],
  ["größe 温度", "größe 温度"],
  ["\u200f", "\\u{200f}"],
]);

test("the middle is left out", () => {
  assert.equal(middle("press-17", 8), "press-17");
  assert.equal(middle("0123456789", 5), "01…89");
  assert.equal([...middle("😀".repeat(40), 9)].length, 9);
  assert.equal(middle("x".repeat(60_000), 36).length, 36);
});
