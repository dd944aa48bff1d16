// What has happened to nodes in the last hour, to be marked in charts.
import { apiUrl, ApiError } from "./api";
import { visible, words } from "../words/format";
import type { LiveEvent } from "./events";

export interface Mark {
  /** In seconds, as the charts count. */
  at: number;
  /** A node, or an alarm of one. */
  of: string;
  text: string;
}

export const types = ["node.state", "alarm.raised", "alarm.cleared"];

/** Each node tells what it sees of another one, and those that lose a node do not do so at once. */
const together = 20;
const kept = 3600;
const most = 100;

function mark({ type, at, reason, subject, node_name }: LiveEvent): Mark {
  const of = visible(subject ? subject.node_name || subject.node : `${node_name ?? ""} ${words(reason ?? "alarm")}`);
  return {
    at: Date.parse(at) / 1000,
    of,
    text: subject ? `${of} ${visible(subject.state)}` : of + (type === "alarm.cleared" ? " over" : ""),
  };
}

/** Adds events to marks, in their order; what several nodes tell of the same is one mark, at the first time. */
export function add(marks: readonly Mark[], events: readonly LiveEvent[], now: number): Mark[] {
  const all = [...marks];
  for (const event of [...events].sort((a, b) => Date.parse(a.at) - Date.parse(b.at))) {
    // That a node is down is told by what its state has become.
    if (!types.includes(event.type) || event.reason === "node_down") continue;
    const one = mark(event);
    // What came to be before, and what after: a node that drains and is up again has been up before as well.
    const same = all.filter(({ of }) => of === one.of);
    const around = [same.filter(({ at }) => at <= one.at).at(-1), same.find(({ at }) => at > one.at)];
    if (around.some((other) => other?.text === one.text && Math.abs(other.at - one.at) < together)) continue;
    all.push(one);
    all.sort((a, b) => a.at - b.at);
  }
  return all.filter(({ at }) => at > now - kept).slice(-most);
}

export interface Message {
  type: string;
  id: string | null;
  data: string;
}

/** The whole messages of a text of server-sent events, and what is left behind them. */
export function messages(text: string): { all: Message[]; rest: string } {
  const parts = text.replaceAll("\r\n", "\n").split("\n\n");
  const rest = parts.pop()!;
  const all = parts.map((part) => {
    const message: Message = { type: "message", id: null, data: "" };
    for (const line of part.split("\n")) {
      const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
      if (name === "event") message.type = value!;
      else if (name === "id") message.id = value!;
      else if (name === "data") message.data += value;
    }
    return message;
  });
  return { all, rest };
}

/** The stream has told all that there is when it is silent for longer than the half second between its questions. */
const silence = 800;
const longest = 5000;

/**
 * What has happened behind the position `after`, or in the last hour, and the position behind that. The stream is left again: a node has few of
 * them, and whoever looks at the overview all day is not to keep one.
 */
export async function happened(
  after: string | null,
  now: number,
  abort: AbortSignal,
): Promise<{ events: LiveEvent[]; position: string | null }> {
  const stop = new AbortController();
  const ends = setTimeout(() => stop.abort(), longest);
  let quiet: ReturnType<typeof setTimeout> | undefined;
  const path = `/events?${new URLSearchParams({ type: types.join(), ...(after ? { after } : { since: new Date((now - kept) * 1000).toISOString() }) })}`;
  let [events, position, text] = [[] as LiveEvent[], after, ""];
  try {
    const answer = await fetch(apiUrl(path), {
      headers: { Accept: "text/event-stream" },
      credentials: "same-origin",
      cache: "no-store",
      signal: AbortSignal.any([abort, stop.signal]),
    });
    if (!answer.ok)
      throw new ApiError({
        type: "about:blank",
        title: `The answer was ${answer.status}`,
        status: answer.status,
        detail: "",
        instance: "",
      });
    const decoder = new TextDecoder();
    const reader = answer.body!.getReader();
    for (;;) {
      clearTimeout(quiet);
      quiet = setTimeout(() => stop.abort(), silence);
      const { done, value } = await reader.read();
      if (done) break;
      const { all, rest } = messages(text + decoder.decode(value, { stream: true }));
      text = rest;
      for (const message of all) {
        if (message.id) position = message.id;
        if (types.includes(message.type)) events.push(JSON.parse(message.data) as LiveEvent);
      }
    }
  } catch (error) {
    if (abort.aborted || !stop.signal.aborted) throw error;
  } finally {
    clearTimeout(ends);
    clearTimeout(quiet);
    stop.abort();
  }
  return { events, position };
}
