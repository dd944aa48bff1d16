// What there is to say of a client first.
import type { Problem } from "../../api/api";
import type { Client } from "../../api/api.types";
import { Ago, Moment } from "../../parts/text";
import { plural, visible, words } from "../../words/format";

export function absent(problem: Problem) {
  const last = problem.last_departure as Departure | null | undefined;
  return last ? (
    <>
      This client is not connected and has no session. It was last connected to {visible(last.node_name)}, until{" "}
      <Moment at={last.at} />: {words(last.reason)}.
    </>
  ) : (
    <>This client is not connected and has no session, and no node remembers when it was last connected.</>
  );
}

export const isFull = (client: Client) => {
  const queue = client.queue;
  return (
    !!queue &&
    ((queue.limit_messages !== null && queue.messages >= queue.limit_messages) ||
      (queue.limit_bytes !== null && queue.bytes >= queue.limit_bytes))
  );
};

const atLimit: Record<string, string> = {
  drop_oldest: "the oldest messages are dropped",
  drop_newest: "arriving messages are dropped",
  refuse: "arriving messages are refused",
};

export function sentence(client: Client) {
  const left = client.last_departure;
  const where =
    client.state === "connected" ? (
      <>
        Connected to {visible(client.node_name ?? "a node")} for <Ago at={client.connection?.connected_at} />
      </>
    ) : client.state === "away" ? (
      <>
        Away
        {client.session?.since && (
          <>
            {" "}
            for <Ago at={client.session.since} />
          </>
        )}
        {left && `; it left ${visible(left.node_name)}: ${words(left.reason)}`}
      </>
    ) : (
      words(client.state)
    );
  const queue = client.queue;
  const waits = isFull(client)
    ? `; its queue is full, so ${atLimit[queue?.full ?? ""] ?? "messages are dropped"}`
    : queue && queue.messages > 0
      ? `; ${plural(queue.messages, "message waits", "messages wait")} for it`
      : "";
  const held =
    client.held_by.length > 0
      ? `; its messages wait, because the queue of ${visible(client.held_by[0]!).slice(0, 60)} is full`
      : "";
  return (
    <>
      {where}
      {waits}
      {held}.
    </>
  );
}

type Departure = { at: string; node_name: string; reason: string };
