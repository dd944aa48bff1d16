// Rates from counters of two answers.
import type { Counts, Stats } from "./api.types";

export interface Rates {
  total: Partial<Record<keyof Counts, number>>;
  /** By node identifier. */
  nodes: Map<string, Partial<Record<keyof Counts, number>>>;
}

/** A counter that went back belongs to a node that was started again: its rate is not known. */
export function between(before: Stats | null, after: Stats): Rates | null {
  const seconds = before ? (Date.parse(after.as_of) - Date.parse(before.as_of)) / 1000 : 0;
  if (!before || seconds <= 0) return null;
  const nodes: Rates["nodes"] = new Map();
  const total: Rates["total"] = {};
  for (const node of after.nodes) {
    const old = before.nodes.find((one) => one.node === node.node);
    if (!old) continue;
    const rates: Partial<Record<keyof Counts, number>> = {};
    for (const name of Object.keys(node.counts) as (keyof Counts)[]) {
      const difference = node.counts[name] - old.counts[name];
      if (difference < 0) continue;
      rates[name] = difference / seconds;
      total[name] = (total[name] ?? 0) + difference / seconds;
    }
    nodes.set(node.node, rates);
  }
  return { total, nodes };
}
