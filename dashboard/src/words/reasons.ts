// What the reasons of drops mean, and what helps.
import { words } from "./format";

const reasons: Record<string, [meaning: string, remedy: string]> = {
  queue_full_messages: [
    "the queue of the session holds its maximum of messages",
    "a faster client, or more queueMessages",
  ],
  queue_full_bytes: ["the queue of the session holds its maximum of bytes", "a faster client, or more queueBytes"],
  expired: ["the expiry interval of the message passed in the queue", "a longer message expiry interval"],
  packet_too_large: [
    "larger than the client's Maximum Packet Size",
    "smaller messages, or a larger size at the client",
  ],
  offline_qos0: ["QoS 0 for a client that is away", "inbox.qos0: offline"],
  retention_age: ["queued for longer than its class allows", "a longer queueAgeSeconds, a faster client"],
  retention_bytes: ["the queues of a class or node had too many bytes", "more queuedBytes, a faster client"],
  disk_high_water: ["the disk has too little space left", "free space on the disk"],
  purged: ["an operator has emptied the queue", "nothing: it was intended"],
  session_ended: ["the session ended with messages in its queue", "a longer session expiry interval"],
  topic_limit: ["the topic is too long or too deep", "limits.topic"],
  payload_format_invalid: ["announced as UTF-8, and is not", "the publisher's payload format"],
  retained_limit: ["too many retained messages or bytes", "retain.maxMessages, retain.maxBytes"],
  reserved_topic: ["published to $SYS, $hmq or below them", "another topic"],
  bridge_notification: ["a bridge published its state under $SYS", "notifications false at the bridge"],
  no_group_member: ["nobody was left in the shared group", "a member that is connected or durable"],
  publish_denied: ["a rule denies the publication", "the rules of the publisher"],
  retain_denied: ["a rule denies the retention", "the rules of the publisher"],
  receive_denied: ["a rule denies the delivery to the subscriber", "the rules of the subscriber"],
  subscribe_denied: ["a rule denies the subscription", "the rules of the subscriber"],
  store_failed: ["the store could not keep the message", "free space on the disk"],
  peer_unreachable: ["a node with subscribers could not be reached", "the network between the nodes"],
};

export const meaning = (reason: string): string => reasons[reason]?.[0] ?? "";
export const remedy = (reason: string): string => reasons[reason]?.[1] ?? "";

const names: Record<string, string> = {
  queue_full_messages: "queue full (messages)",
  queue_full_bytes: "queue full (bytes)",
};
export const reasonName = (reason: string): string => names[reason] ?? words(reason);
