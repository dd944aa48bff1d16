// What an operator has begun on a shard, and what the shards say of it since. A transfer or a split is done once it is
// seen: the broker's answer says only that it was begun.
import type { NodeId, ShardRow } from "./api.types";
import { plural, visible } from "../words/format";

export interface Begun {
  what: "transfer" | "split";
  store: string;
  shard: number;
  /** The term of the leader before. */
  term: string;
  /** Who shall lead; the first slot of the new shard. */
  to: NodeId;
  toName: string;
  at: number;
  /** When it was begun, by the browser's clock. */
  since: number;
}

export interface Outcome {
  over: boolean;
  says: string;
}

/** After so long, what has not come is not waited for. */
const patienceMs = 30_000;

export const nameOf = ({ store, shard }: { store: string; shard: number }) => `${store} ${shard}`;

export function outcome(begun: Begun, rows: ShardRow[], now: number): Outcome {
  const row = rows.find(({ store, shard }) => store === begun.store && shard === begun.shard);
  const late = now - begun.since > patienceMs;
  const name = nameOf(begun);
  if (begun.what === "split") {
    const made = rows.find(({ store, shard }) => store === begun.store && shard === begun.at);
    const shards = rows.filter(({ store }) => store === begun.store).length;
    if (made?.leader != null)
      return {
        over: true,
        says: `${name} was split: ${nameOf(made)} has the slots from ${made.first_slot} to ${made.last_slot}, and ${visible(made.leader_name ?? made.leader)} leads it. The ${begun.store} store has ${plural(shards, "shard")}.`,
      };
    return {
      over: late,
      says: `${name} ${late ? "was not split within 30 s" : "is being split"}: ${made ? `${nameOf(made)} has no leader yet` : `there is no shard ${begun.at} yet`}.`,
    };
  }
  const to = visible(begun.toName);
  if (row?.leader === begun.to) return { over: true, says: `${to} leads ${name}.` };
  // Each election has a term of its own: who leads in a later one and is another was elected afterwards.
  if (row?.leader != null && Number(row.term) > Number(begun.term))
    return {
      over: true,
      says: `${visible(row.leader_name ?? row.leader)} leads ${name} in term ${row.term}, not ${to}: the cluster has moved the lead again, as it does to spread leaders evenly.`,
    };
  return {
    over: late,
    says: `${late ? `${to} has not become the leader of ${name} within 30 s` : `${to} is taking over ${name}`}: ${row?.leader == null ? "it has no leader" : `${visible(row.leader_name ?? row.leader)} still leads it`}.`,
  };
}

/** How many shards each node leads. */
export function led(rows: ShardRow[]): Map<NodeId, number> {
  const counts = new Map<NodeId, number>();
  for (const row of rows) {
    for (const voter of row.voters) if (!counts.has(voter.node)) counts.set(voter.node, 0);
    if (row.leader !== null) counts.set(row.leader, (counts.get(row.leader) ?? 0) + 1);
  }
  return counts;
}

/** The voter that would lead two shards less than the new leader, so that the cluster gives it one: often the same. */
export function undoneFor(
  row: ShardRow,
  to: NodeId,
  rows: ShardRow[],
): { name: string; has: number; more: number } | null {
  const counts = led(rows);
  const after = (node: NodeId) => (counts.get(node) ?? 0) + (node === to ? 1 : 0) - (node === row.leader ? 1 : 0);
  const [least] = row.voters
    .filter((voter) => voter.reach === "up" && voter.node !== to)
    .sort((a, b) => after(a.node) - after(b.node));
  return least && after(to) - after(least.node) >= 2
    ? { name: least.node_name, has: after(least.node), more: after(to) }
    : null;
}

/** Where the broker splits a shard if it is not told: where the load halves, or in the middle. `null`: it has one slot. */
export function half({ load, first_slot: first, last_slot: last }: ShardRow): number | null {
  if (first === null || last === null || first === last) return null;
  return load?.half ? load.half.slot : Math.floor((first + last) / 2) + 1;
}
