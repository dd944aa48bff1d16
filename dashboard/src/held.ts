// Why what a client sends waits.
import type { PublisherHold } from "./api.types";

const reasons: Record<string, string> = {
  bytes_per_second: "it sends more bytes per second than it may",
  publishes_per_second: "it publishes more messages per second than it may",
  memory: "memory of its node is scarce",
  store: "the stores of its node have as much to do as they may",
  other_nodes: "another node does not take messages as fast as it sends them",
  subscriber_queue: "the queue of a subscriber is filling up",
  durable_queues: "queues of durable sessions are filling up",
  many_receivers: "its messages have many receivers, which have not got them yet",
  unread_answers: "it does not read what it is answered",
};

export const heldBecause = (reason: string): string => reasons[reason] ?? "its node is of a later version and has another reason";

/** The part of the last minute, in percent. */
export const share = (held: Pick<PublisherHold, "share_percent">): string => `${Math.round(held.share_percent)} %`;
