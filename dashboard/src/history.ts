// The last hour of each node, as it grows by what was asked with `since`.
import type { History, NodeHistory } from "./api.types";

export type Values = (number | null)[];

export interface Series {
  stepMs: number;
  /** When the last sample ended. */
  endMs: number;
  length: number;
  nodes: { node: string; name: string; values: Record<string, Values> }[];
}

const most = 360;

/** One time line for all nodes; what a node does not know is `null`. */
export function merge(old: Series | null, answer: History): Series | null {
  const stepMs = answer.step_s * 1000;
  const ends = answer.nodes.flatMap((node) => (node.end ? [Date.parse(node.end)] : []));
  if (ends.length === 0) return old;
  const endMs = Math.max(old?.endMs ?? 0, ...ends);
  const before = old ? old.length + Math.round((endMs - old.endMs) / stepMs) : 0;
  const length = Math.min(most, Math.max(before, ...answer.nodes.map((node) => lengthTo(node, endMs, stepMs))));
  const known = new Map(old?.nodes.map((node) => [node.node, node]));
  for (const node of answer.nodes) if (!known.has(node.node)) known.set(node.node, { node: node.node, name: node.node_name, values: {} });
  const nodes = [...known.values()].map((node) => {
    const fresh = answer.nodes.find((one) => one.node === node.node);
    const names = new Set([...Object.keys(node.values), ...Object.keys(fresh?.series ?? {})]);
    const values: Record<string, Values> = {};
    for (const name of names) {
      const line: Values = new Array(length).fill(null);
      put(line, node.values[name], old?.endMs, endMs, stepMs);
      put(line, fresh?.series[name] ?? undefined, fresh?.end ? Date.parse(fresh.end) : undefined, endMs, stepMs);
      values[name] = line;
    }
    return { node: node.node, name: node.name, values };
  });
  nodes.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  return { stepMs, endMs, length, nodes };
}

function lengthTo(node: NodeHistory, endMs: number, stepMs: number): number {
  if (!node.end) return 0;
  const longest = Math.max(0, ...Object.values(node.series).map((values) => values?.length ?? 0));
  return longest + Math.round((endMs - Date.parse(node.end)) / stepMs);
}

function put(line: Values, values: Values | undefined, end: number | undefined, endMs: number, stepMs: number) {
  if (!values || end === undefined) return;
  const last = line.length - 1 - Math.round((endMs - end) / stepMs);
  for (let n = 0; n < values.length; n++) {
    const at = last - (values.length - 1 - n);
    if (at >= 0 && values[n] != null) line[at] = values[n]!;
  }
}

/** When each sample ended, in seconds. */
export const times = (series: Series): number[] =>
  Array.from({ length: series.length }, (_, n) => (series.endMs - (series.length - 1 - n) * series.stepMs) / 1000);

/** The sum over all nodes, and where it lacks a node that has been there before. */
export function sum(series: Series, name: string): { all: Values; lacking: Values } {
  const all: Values = [];
  const lacking: Values = [];
  const seen = new Set<string>();
  for (let n = 0; n < series.length; n++) {
    let [total, any] = [0, false];
    const missing = new Set(seen);
    for (const node of series.nodes) {
      const value = node.values[name]?.[n];
      if (value == null) continue;
      [total, any] = [total + value, true];
      seen.add(node.node);
      missing.delete(node.node);
    }
    all.push(any && missing.size === 0 ? total : null);
    lacking.push(any && missing.size > 0 ? total : null);
  }
  return { all, lacking };
}

/** The largest value of all nodes: what cannot be added, such as a percentile. `null` where no node has one. */
export function worst(series: Series, name: string): Values {
  return Array.from({ length: series.length }, (_, n) => {
    const known = series.nodes.map((node) => node.values[name]?.[n]).filter((value): value is number => value != null);
    return known.length === 0 ? null : Math.max(...known);
  });
}

/** A line for each of the first six nodes that have ever had a value; a node has the same colour in all charts. */
export const ofNodes = (series: Series | null, name: string): { name: string; color: number; values: Values }[] =>
  (series?.nodes ?? []).slice(0, nodeColors.length)
    .map((node, n) => ({ name: node.name, color: nodeColors[n]!, values: node.values[name] ?? [] }))
    .filter((line) => line.values.some((value) => value != null));

const nodeColors = [1, 2, 8, 3, 5, 7];

/**
 * Lines that stand on one another, the first at the bottom: of each, what it and those below it are together. What is not
 * known of one counts as nothing while something is known of another.
 */
export function stack(lines: readonly Values[]): Values[] {
  const tops: Values[] = [];
  for (const line of lines) {
    const below = tops.at(-1);
    tops.push(line.map((value, n) => (lines.some((one) => one[n] != null) ? (value ?? 0) + (below?.[n] ?? 0) : null)));
  }
  return tops;
}

const dropped = "dropped_per_s.";

/** The rates of drops by reason, most first; from the sixth reason on together, as `null`. */
export function byReason(series: Series): { reason: string | null; all: Values; lacking: Values }[] {
  const names = new Set(series.nodes.flatMap((node) => Object.keys(node.values).filter((name) => name.startsWith(dropped))));
  const each = [...names].map((name) => ({ reason: name.slice(dropped.length) as string | null, ...sum(series, name) }));
  const size = (values: Values) => values.reduce<number>((total, value) => total + (value ?? 0), 0);
  const most = each.map((one) => ({ ...one, size: size(one.all) + size(one.lacking) })).filter((one) => one.size > 0).sort((a, b) => b.size - a.size);
  const together = (part: "all" | "lacking"): Values => Array.from({ length: series.length }, (_, n) => {
    const known = most.slice(5).map((one) => one[part][n]).filter((value): value is number => value != null);
    return known.length === 0 ? null : known.reduce((total, value) => total + value, 0);
  });
  const first = most.slice(0, 5).map(({ reason, all, lacking }) => ({ reason, all, lacking }));
  return most.length > 5 ? [...first, { reason: null, all: together("all"), lacking: together("lacking") }] : first;
}
