// The last hour of each node, as it grows by what was asked with `since`.
import type { History, NodeHistory } from "./api.types";

export type Values = (number | null)[];

export interface Series {
  stepMs: number;
  /** When the last sample ended. */
  endMs: number;
  length: number;
  nodes: NodeValues[];
}

interface NodeValues {
  node: string;
  name: string;
  /** Whether it belongs to the cluster, as the latest answer says. */
  isMember: boolean;
  values: Record<string, Values>;
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
  const silent = answer.partial.flatMap(({ node, node_name }) => (node ? [{ node, node_name }] : []));
  const members = [...answer.nodes, ...silent];
  for (const { node, node_name } of members)
    if (!known.has(node)) known.set(node, { node, name: node_name || node, isMember: true, values: {} });
  const nodes = [...known.values()].map((node): NodeValues => {
    const fresh = answer.nodes.find((one) => one.node === node.node);
    const names = new Set([...Object.keys(node.values), ...Object.keys(fresh?.series ?? {})]);
    const values: Record<string, Values> = {};
    for (const name of names) {
      const line: Values = new Array(length).fill(null);
      put(line, node.values[name], old?.endMs, endMs, stepMs);
      put(line, fresh?.series[name] ?? undefined, fresh?.end ? Date.parse(fresh.end) : undefined, endMs, stepMs);
      values[name] = line;
    }
    return { node: node.node, name: node.name, isMember: members.some((one) => one.node === node.node), values };
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

/** Where the samples of a node begin and end; `null`: it has none. */
function extent(series: Series, node: NodeValues): { first: number; last: number } | null {
  const lines = Object.values(node.values);
  const isKnown = (n: number) => lines.some((line) => line[n] != null);
  const known = Array.from({ length: series.length }, (_, n) => n).filter(isKnown);
  return known.length === 0 ? null : { first: known[0]!, last: known.at(-1)! };
}

/**
 * The sum over all nodes, and where it lacks one: a member of the cluster without a sample, whether or not it had one before,
 * since a node that was started again has lost those of its earlier life. A node that is no member any more is lacking only up to
 * its last sample.
 */
export function sum(series: Series, name: string): { all: Values; lacking: Values } {
  const all: Values = [];
  const lacking: Values = [];
  const nodes = series.nodes.map((node) => ({
    ...node,
    lines: Object.values(node.values),
    last: node.isMember ? series.length : (extent(series, node)?.last ?? -1),
  }));
  for (let n = 0; n < series.length; n++) {
    let [total, any, isLacking] = [0, false, false];
    for (const node of nodes) {
      const value = node.values[name]?.[n];
      if (value != null) [total, any] = [total + value, true];
      // A sample without this value is of a node that has nothing to add, such as drops for a reason that did not occur.
      else if (
        n <= node.last &&
        (node.values[name]?.some((one) => one != null) || node.lines.every((line) => line[n] == null))
      )
        isLacking = true;
    }
    all.push(any && !isLacking ? total : null);
    lacking.push(any && isLacking ? total : null);
  }
  return { all, lacking };
}

/** Samples that nodes of a cluster that has just been started may begin apart. */
const apart = 3;

/**
 * Members whose samples begin later than those of others, with when they begin in seconds; `null`: they have none. A node keeps its
 * samples in memory, so one that was started again has lost those before.
 */
export function beginLate(series: Series): { name: string; from: number | null }[] {
  return series.nodes
    .filter((node) => node.isMember)
    .flatMap((node): { name: string; from: number | null }[] => {
      const known = extent(series, node);
      if (known === null) return [{ name: node.name, from: null }];
      // A sample stands where it ends.
      return known.first > apart ? [{ name: node.name, from: times(series)[known.first]! - series.stepMs / 1000 }] : [];
    });
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
  (series?.nodes ?? [])
    .slice(0, nodeColors.length)
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
  const names = new Set(
    series.nodes.flatMap((node) => Object.keys(node.values).filter((name) => name.startsWith(dropped))),
  );
  const each = [...names].map((name) => ({
    reason: name.slice(dropped.length) as string | null,
    ...sum(series, name),
  }));
  const size = (values: Values) => values.reduce<number>((total, value) => total + (value ?? 0), 0);
  const most = each
    .map((one) => ({ ...one, size: size(one.all) + size(one.lacking) }))
    .filter((one) => one.size > 0)
    .sort((a, b) => b.size - a.size);
  const together = (part: "all" | "lacking"): Values =>
    Array.from({ length: series.length }, (_, n) => {
      const known = most
        .slice(5)
        .map((one) => one[part][n])
        .filter((value): value is number => value != null);
      return known.length === 0 ? null : known.reduce((total, value) => total + value, 0);
    });
  const first = most.slice(0, 5).map(({ reason, all, lacking }) => ({ reason, all, lacking }));
  return most.length > 5 ? [...first, { reason: null, all: together("all"), lacking: together("lacking") }] : first;
}
