// Live events: at most one stream of a browser, none while the tab is hidden. Browsers open six connections to a host, and
// a stream in each tab would take them all.
import { useEffect, useState } from "preact/hooks";
import { ApiError, ask, apiUrl, fill } from "./api";
import { paused } from "./poll";

export interface LiveEvent {
  type: string;
  at: string;
  node: string | null;
  node_name: string | null;
  seq: number | string | null;
  client_id: string | null;
  user: string | null;
  address: string | null;
  reason: string | null;
  topic: string | null;
  count: number | null;
  detail: string | null;
  subject: { node: string; node_name: string; state: string } | null;
}

export type StreamState = "opening" | "live" | "waiting" | "unavailable" | "broken";
export interface Stream {
  state: StreamState;
  events: LiveEvent[];
  /** How many events were lost, as far as it is known. */
  gaps: { node_name: string; count: number | null }[];
}

const most = 200;
const types = [
  "client.connected",
  "client.disconnected",
  "client.refused",
  "message.dropped",
  "alarm.raised",
  "alarm.cleared",
  "node.state",
  "shard.leader",
  "shard.split",
  "shard.moved",
  "right.denied",
  "api.change",
  "session.begun",
  "session.ended",
  "subscription.added",
  "subscription.removed",
];

export function useEvents(query: Record<string, string | undefined>): Stream {
  const [stream, setStream] = useState<Stream>({ state: "opening", events: [], gaps: [] });
  const path = fill("/events", query);
  useEffect(() => {
    setStream({ state: "opening", events: [], gaps: [] });
    const set = (state: StreamState) => setStream((old) => ({ ...old, state }));
    return whileSeen(
      "heraldmq-events",
      () => set("waiting"),
      (ended) => open(path, ended, set, setStream),
    );
  }, [path]);
  return stream;
}

/** Runs `open` while the tab is seen and nothing is paused, and only in one tab of the browser for each name; `wait` says that another has it. */
export function whileSeen(name: string, wait: () => void, open: (ended: AbortSignal) => void): () => void {
  let ended: AbortController | null = null;
  function follow() {
    const wanted = !document.hidden && !paused.value;
    if (wanted && !ended) {
      ended = new AbortController();
      const { signal } = ended;
      wait();
      navigator.locks
        .request(
          name,
          { signal },
          () =>
            new Promise<void>((done) => {
              signal.addEventListener("abort", () => done());
              open(signal);
            }),
        )
        .catch(() => {});
    }
    if (!wanted && ended) {
      ended.abort();
      ended = null;
    }
  }
  document.addEventListener("visibilitychange", follow);
  const stop = paused.subscribe(follow);
  return () => {
    document.removeEventListener("visibilitychange", follow);
    stop();
    ended?.abort();
  };
}

function open(
  path: string,
  ended: AbortSignal,
  set: (state: StreamState) => void,
  change: (by: (old: Stream) => Stream) => void,
): void {
  const source = new EventSource(apiUrl(path));
  ended.addEventListener("abort", () => source.close());
  source.onopen = () => set("live");
  source.onerror = () =>
    void unavailable(path, ended).then((none) => {
      if (none) source.close();
      if (!ended.aborted) set(none ? "unavailable" : "broken");
    });
  const came = (message: MessageEvent<string>) => {
    const event = JSON.parse(message.data) as LiveEvent;
    change((old) => ({ ...old, events: [event, ...old.events].slice(0, most) }));
  };
  for (const type of types) source.addEventListener(type, came);
  source.addEventListener("gap", (message) =>
    change((old) => ({ ...old, gaps: [JSON.parse(message.data), ...old.gaps].slice(0, 10) })),
  );
  source.addEventListener("end", () => set("broken"));
}

/** An EventSource does not say why it failed; a plain request does. */
async function unavailable(path: string, abort: AbortSignal): Promise<boolean> {
  const limited = new AbortController();
  abort.addEventListener("abort", () => limited.abort());
  const timer = setTimeout(() => limited.abort(), 1000);
  try {
    await ask("GET", path, undefined, limited.signal);
    return false;
  } catch (error) {
    return error instanceof ApiError && error.problem.status === 404;
  } finally {
    clearTimeout(timer);
    limited.abort();
  }
}
