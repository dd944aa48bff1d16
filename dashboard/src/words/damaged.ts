// What the page of nodes says of damaged replicas: that of the node that answers in detail, of others how many.
import type { ClusterStatus, DamagedReplica } from "../api/api.types";
import { bytes, duration, plural, visible } from "./format";

/** Replicas of a node; an earlier version of the broker says nothing of them. */
export const damagedOf = (status: ClusterStatus | null | undefined): DamagedReplica[] => status?.damaged ?? [];

/** How far a replica is with becoming whole again. */
export function recovery(replica: DamagedReplica): string {
  const received = replica.received_bytes == null ? "" : `, ${bytes(replica.received_bytes)} so far`;
  const source = replica.recovers_from === "other_replicas" ? "from the other replicas" : "from nothing";
  return `${source}: ${visible(replica.state)}${received}`;
}

/** For how long the damage is known. */
export const knownFor = (replica: DamagedReplica): string => duration(replica.seconds);

/** Other nodes with replicas that cannot be used: a sentence for each. */
export function elsewhere(status: ClusterStatus | null | undefined): string[] {
  const others = (status?.nodes ?? []).filter(
    (node) => node.node !== status?.node && (node.unusable_replicas ?? 0) > 0,
  );
  return others.map(
    (node) =>
      `${visible(node.name || node.node)} has ${plural(node.unusable_replicas, "replica")} that cannot be used. The dashboard of that node says why.`,
  );
}
