// Why what a client sends waits.
import type { PublisherHold } from "./api.types";

const reasons: Record<string, string> = {
  bytes_per_second: "it exceeds its limit of bytes per second",
  publishes_per_second: "it exceeds its limit of messages per second",
  memory: "its node is short of memory",
  store: "the stores of its node are at their limit of pending requests",
  other_nodes: "another node does not take messages as fast as it sends them",
  subscriber_queue: "the queue of a subscriber is filling up",
  durable_queues: "queues of durable sessions are filling up",
  many_receivers: "its messages have many receivers, which have not received them yet",
  unread_answers: "it does not read the answers of the broker",
};

export const heldBecause = (reason: string): string =>
  reasons[reason] ?? "its node runs a later version and gives a reason that this page does not know";

/** The part of the last minute, in percent. */
export const share = (held: Pick<PublisherHold, "share_percent">): string => `${Math.round(held.share_percent)} %`;
