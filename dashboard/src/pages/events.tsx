// What has happened, and what happens now?
import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../api/api";
import { clusterNow } from "../api/clock";
import { commandOf } from "../words/command";
import { EventList } from "../parts/eventlist";
import { visible } from "../words/format";
import { Head } from "../parts/notices";
import { usePolled } from "../api/poll";
import { replaceParameters, route } from "../navigation/route";

const kinds: Record<string, [label: string, types: string]> = {
  clients: ["clients and sessions", "client.connected,client.disconnected,client.refused,session.begun,session.ended"],
  subscriptions: ["subscriptions", "subscription.added,subscription.removed"],
  drops: ["dropped messages", "message.dropped"],
  cluster: ["nodes, shards and alarms", "node.state,shard.leader,shard.split,shard.moved,alarm.raised,alarm.cleared"],
  changes: ["changes by the API", "api.change"],
  denied: ["denied rights", "right.denied"],
};
const spans: Record<string, [label: string, seconds: number]> = {
  "5m": ["5 minutes", 300],
  "1h": ["hour", 3600],
  "1d": ["day", 86_400],
};
const fields = ["kind", "from", "prefix", "topic", "node"] as const;

export function Events() {
  const asked = Object.fromEntries(fields.map((name) => [name, route.value.parameters[name]]));
  const type = kinds[asked.kind ?? ""]?.[1];
  // The span ends where the stream begins: a question that changed with each second would begin anew each time.
  const key = fields.map((name) => asked[name]).join("\0");
  const begun = useRef({ key: "", since: "" });
  if (begun.current.key !== key)
    begun.current = { key, since: new Date(clusterNow() - 1000 * (spans[asked.from ?? "1h"]?.[1] ?? 0)).toISOString() };
  const query = {
    type,
    prefix: asked.prefix,
    topic: asked.topic,
    node: asked.node,
    since: asked.from === "now" ? undefined : begun.current.since,
  };
  return (
    <>
      <Head
        title="Events"
        request="/events"
        command={commandOf("events", [], { type, prefix: asked.prefix, topic: asked.topic, on: asked.node })}
      >
        What has happened to clients, messages, nodes and shards, as far as the nodes remember it; new events appear at
        the top.
      </Head>
      <Filters asked={asked} />
      <EventList query={query} />
    </>
  );
}

function Filters({ asked }: { asked: Record<string, string | undefined> }) {
  const [draft, setDraft] = useState(asked);
  const nodes = usePolled((abort) => get("/nodes", {}, {}, abort), 30_000, []);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => setDraft(asked), [JSON.stringify(asked)]);
  function set(name: string, value: string) {
    const next = { ...draft, [name]: value };
    setDraft(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => replaceParameters(next), 300);
  }
  const choice = (name: string, label: string, options: [string, string][]) => (
    <label class="field">
      {label}
      <select value={draft[name] ?? ""} onChange={(event) => set(name, event.currentTarget.value)}>
        {options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
  const text = (name: string, label: string) => (
    <label class="field">
      {label}
      <input
        value={draft[name] ?? ""}
        onInput={(event) => set(name, event.currentTarget.value)}
        autocomplete="off"
        spellcheck={false}
      />
    </label>
  );
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()}>
      {choice("kind", "Events", [
        ["", "all"],
        ...Object.entries(kinds).map(([name, [label]]): [string, string] => [name, label]),
      ])}
      {choice("from", "From", [
        ["", "the last hour"],
        ["5m", "the last 5 minutes"],
        ["1d", "the last day"],
        ["now", "now on"],
      ])}
      {choice("node", "Node", [
        ["", "all"],
        ...(nodes.value?.items ?? []).map((node): [string, string] => [node.node, visible(node.node_name)]),
      ])}
      {text("prefix", "Client begins with")}
      {text("topic", "Topic filter")}
    </form>
  );
}
