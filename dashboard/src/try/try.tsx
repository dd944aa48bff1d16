// Does it work? A client of MQTT over WebSocket, or messages by the HTTP API where there is no WebSocket listener: a document of its own,
// for it may connect to other ports than the dashboard.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import mqtt, { type IClientOptions, type MqttClient } from "mqtt";
import type { ListenerRow, Match } from "../api/api.types";
import { get, post, problemOf } from "../api/api";
import { reasonWords, returnWords } from "../words/codes";
import { count, plural, time, visible } from "../words/format";
import { base64, bytesOf, shown, type Form } from "../words/payload";
import { zone } from "../navigation/preferences";
import { lookWhoIsSignedIn, may, me } from "../api/session";
import { State } from "../parts/text";

type Packet = { cmd: string; [field: string]: unknown };

interface Entry {
  number: number;
  at: number;
  /** Which way it went; `null`: neither. */
  sent: boolean | null;
  what: string;
  text: string;
  more: string[];
  isBad: boolean;
}

const most = 500;
const entries = signal<Entry[]>([]);
const isPaused = signal(false);
let [written, held] = [0, [] as Entry[]];

function note(sent: boolean | null, what: string, text: string, more: string[] = [], isBad = false) {
  held = [{ number: ++written, at: Date.now(), sent, what, text, more, isBad }, ...held].slice(0, most);
  if (!isPaused.value) entries.value = held;
}

/** A text of whoever publishes, as far as a list has room for it. */
const text = (of: unknown) => visible(String(of).slice(0, 2000));
const mostProperties = 50;

/** Properties, a line each. */
function properties(packet: Packet): string[] {
  const lines = Object.entries((packet.properties ?? {}) as Record<string, unknown>).flatMap(([name, value]) => {
    if (value == null) return [];
    const title = name.replace(/([A-Z])/g, " $1").toLowerCase();
    if (name === "userProperties")
      return Object.entries(value as Record<string, string | string[]>).flatMap(([key, values]) =>
        [values].flat().map((one) => `user property ${text(key)}: ${text(one)}`),
      );
    return [`${title}: ${value instanceof Uint8Array ? shown(value) : text(value)}`];
  });
  return lines.length > mostProperties
    ? [...lines.slice(0, mostProperties), plural(lines.length - mostProperties, "more property", "more properties")]
    : lines;
}

function flags(packet: Packet): string {
  return [`QoS ${packet.qos}`, packet.retain ? "retain" : "", packet.dup ? "duplicate" : ""].filter(Boolean).join(", ");
}

function tell(sent: boolean, packet: Packet, version: number) {
  const say = (text: string, isBad = false) => note(sent, packet.cmd.toUpperCase(), text, properties(packet), isBad);
  const code = packet.reasonCode as number | undefined;
  switch (packet.cmd) {
    case "publish": {
      const payload =
        typeof packet.payload === "string" ? new TextEncoder().encode(packet.payload) : (packet.payload as Uint8Array);
      return note(sent, "PUBLISH", text(packet.topic), [flags(packet), shown(payload), ...properties(packet)]);
    }
    case "connect":
      return say(
        `as ${visible(String(packet.clientId)) || "(identifier assigned by the broker)"}${packet.clean ? ", clean start" : ""}`,
      );
    case "connack": {
      const answer = (version === 5 ? code : (packet.returnCode as number)) ?? 0;
      return say(
        `${version === 5 ? reasonWords(answer) : returnWords(answer)}${packet.sessionPresent ? ", session present" : ""}`,
        answer !== 0,
      );
    }
    case "subscribe":
      return say(
        (packet.subscriptions as { topic: string; qos: number }[])
          .map(({ topic, qos }) => `${visible(topic)} with QoS ${qos}`)
          .join("; "),
      );
    case "unsubscribe":
      return say((packet.unsubscriptions as string[]).map(visible).join("; "));
    case "suback":
    case "unsuback": {
      const granted = (packet.granted ?? packet.reasonCode ?? []) as number[] | number;
      const all = [granted].flat();
      return say(
        all.map(reasonWords).join("; ") || "done",
        all.some((one) => one >= 0x80),
      );
    }
    case "pingreq":
    case "pingresp":
      return;
    default:
      return say(code === undefined ? "" : reasonWords(code), (code ?? 0) >= 0x80);
  }
}

interface Wanted {
  url: string;
  client: string;
  user: string;
  password: string;
  version: 4 | 5;
  clean: boolean;
  keepAlive: number;
}

function optionsOf(wanted: Wanted): IClientOptions {
  return {
    clientId: wanted.client,
    protocolVersion: wanted.version,
    clean: wanted.clean || wanted.client === "",
    keepalive: wanted.keepAlive,
    reconnectPeriod: 0,
    connectTimeout: 10_000,
    timerVariant: "native",
    ...(wanted.user ? { username: wanted.user, password: wanted.password } : {}),
    // A session that is to go on needs a time to do so.
    ...(wanted.version === 5 && !wanted.clean ? { properties: { sessionExpiryInterval: 3600 } } : {}),
  };
}

const silence =
  "The connection closed before the broker answered. Browsers do not report the cause: the port may be closed, its certificate may not be trusted, or allowedOrigins of the listener may not include this page.";

type Phase = "away" | "connecting" | "connected";
type Way = "WebSocket" | "HTTP API";

const receiver = ({ client_id, group, filter, outcome }: Match["receivers"][number]) =>
  `${text(client_id ?? `a member of the group ${group}`)}: ${outcome === "one_of" ? "delivered to one member" : outcome}, by ${text(filter)}`;
const mostReceivers = 20;

/** Publishes by the API, and says who gets such a message. */
async function publishByApi(topic: string, payload: Uint8Array, { qos, retain }: { qos: 0 | 1 | 2; retain: boolean }) {
  note(true, "POST /publish", text(topic), [flags({ cmd: "publish", qos, retain }), shown(payload)]);
  const { reason_code: code } = await post("/publish", {
    topic,
    payload: base64(payload),
    encoding: "base64",
    qos,
    retain,
  });
  note(false, "Response", reasonWords(code), [], code >= 0x80);
  const { counts, receivers } = await post("/match", { topic, qos, limit: mostReceivers });
  const all = counts.delivered + counts.queued + counts.dropped;
  note(
    null,
    "Receivers",
    all + counts.groups === 0
      ? "no subscription matches"
      : `${plural(all, "client")}${counts.groups > 0 ? ` and ${plural(counts.groups, "shared group")}` : ""}`,
    receivers.map(receiver),
  );
}

function TryIt() {
  const [listeners, problemOfListeners] = useListeners();
  const [chosen, setChosen] = useState<Way | null>(null);
  const way: Way = chosen ?? (listeners?.some(isWebSocket) === false ? "HTTP API" : "WebSocket");
  const client = useRef<MqttClient | null>(null);
  const [phase, setPhase] = useState<Phase>("away");
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => () => void client.current?.end(true), []);

  function connect(wanted: Wanted) {
    setProblem(null);
    setPhase("connecting");
    let heard = false;
    let made: MqttClient;
    try {
      made = mqtt.connect(wanted.url, optionsOf(wanted));
    } catch (error) {
      setPhase("away");
      return setProblem(String((error as Error).message));
    }
    client.current = made;
    const isThis = () => client.current === made;
    made.on("packetsend", (packet) => tell(true, packet as unknown as Packet, wanted.version));
    made.on("packetreceive", (packet) => {
      heard = true;
      tell(false, packet as unknown as Packet, wanted.version);
    });
    made.on("connect", () => {
      if (isThis()) setPhase("connected");
    });
    made.on("error", (error) => {
      if (isThis() && !heard) setProblem(visible(error.message) || silence);
    });
    made.on("close", () => {
      if (!isThis()) return;
      client.current = null;
      setPhase("away");
      note(null, "Connection closed", heard ? "" : "the broker did not answer", [], !heard);
      if (!heard) setProblem(silence);
      made.end(true);
    });
  }

  const failed = (error: unknown) => {
    const { title, detail } = problemOf(error);
    note(false, "Response", visible(title), [visible(detail)], true);
    setProblem(`${visible(title)}: ${visible(detail)}`);
  };
  const done = (what: string) => (error?: Error | null) => {
    if (error) setProblem(`${what}: ${visible(error.message)}`);
  };
  return (
    <>
      <header class="top">
        <a class="brand" href="./">
          HeraldMQ
        </a>
        <a href="./">Back to the dashboard</a>
      </header>
      <main id="main" tabIndex={-1}>
        <div class="head">
          <h1>Try it</h1>
          <p class="answer">
            {way === "WebSocket" ? (
              <>
                An MQTT client in this page, over WebSocket.{" "}
                <State
                  is={phase === "connected" ? "connected" : phase === "connecting" ? "connecting" : "away"}
                  say={phase === "away" ? "not connected" : phase}
                />
              </>
            ) : (
              <>
                Messages are published through the HTTP API.{" "}
                {listeners?.some(isWebSocket) === false &&
                  "This node has no WebSocket listener, so this page cannot connect as an MQTT client."}
              </>
            )}
          </p>
        </div>
        {problem && (
          <div class="notice bad" role="alert">
            <span class="notice-text">{problem}</span>
            <button type="button" class="quiet" onClick={() => setProblem(null)}>
              Close
            </button>
          </div>
        )}
        <div class="try">
          <div>
            <label class="field">
              Through
              <select
                value={way}
                disabled={phase !== "away"}
                onChange={(event) => setChosen(event.currentTarget.value as Way)}
              >
                <option>WebSocket</option>
                <option>HTTP API</option>
              </select>
            </label>
            {way === "WebSocket" ? (
              <>
                <Connection
                  phase={phase}
                  listeners={listeners}
                  unknown={problemOfListeners}
                  connect={connect}
                  disconnect={() => client.current?.end()}
                />
                <Subscribe
                  on={phase === "connected"}
                  subscribe={(filter, options) => client.current?.subscribe(filter, options, done("SUBSCRIBE"))}
                  unsubscribe={(filter) => client.current?.unsubscribe(filter, done("UNSUBSCRIBE"))}
                />
                <Publish
                  on={phase === "connected"}
                  publish={(topic, payload, options) =>
                    client.current?.publish(topic, payload as Buffer, options, done("PUBLISH"))
                  }
                  failed={setProblem}
                />
              </>
            ) : (
              <>
                <Publish
                  on={may("operator")}
                  publish={(topic, payload, options) => void publishByApi(topic, payload, options).catch(failed)}
                  failed={setProblem}
                />
                <Receive listeners={listeners} />
              </>
            )}
          </div>
          <Packets />
        </div>
      </main>
    </>
  );
}

const Panel = ({ title, submit, children }: { title: string; submit(): void; children: ComponentChildren }) => (
  <section class="panel" aria-label={title}>
    <h2>{title}</h2>
    <form
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      {children}
    </form>
  </section>
);

const portOf = (row: ListenerRow) => row.address.split(":").at(-1) ?? "";

const isWebSocket = (row: ListenerRow) => row.kind === "ws" || row.kind === "wss";

/** The listeners of the node that serves this page, whose host is that of the page; and why they are not known. */
function useListeners(): [listeners: ListenerRow[] | null, unknown: string | null] {
  const [listeners, setListeners] = useState<ListenerRow[] | null>(null);
  const [unknown, setUnknown] = useState<string | null>(null);
  useEffect(() => {
    Promise.all([get("/listeners"), get("/cluster")]).then(
      ([answer, { node }]) => setListeners(answer.items.filter((row) => row.node === node)),
      (error) => setUnknown(problemOf(error).title),
    );
  }, []);
  return [listeners, unknown];
}

/** What helps to receive where this page cannot. */
function Receive({ listeners }: { listeners: ListenerRow[] | null }) {
  const plain = listeners?.find((row) => row.kind === "tcp");
  const to = plain ? `-h ${location.hostname} -p ${portOf(plain)} ` : "";
  return (
    <section class="panel" aria-label="Receive">
      <h2>Receive</h2>
      {!may("operator") && (
        <p class="notice warn">
          <span class="notice-text">
            Publishing needs the role operator{me.value?.user ? "" : ". Sign in on the dashboard first"}.
          </span>
        </p>
      )}
      <p>The HTTP API has no stream of messages. To receive them, subscribe in a terminal:</p>
      <p>
        <code>{`heraldmq sub ${to}-t '#'`}</code>
      </p>
      <p class="soft small">
        To receive in this page, configure a WebSocket listener (<code>wsListener</code> or <code>wssListener</code> of{" "}
        <code>mqttServerConfig</code>).
      </p>
    </section>
  );
}

interface ConnectionProps {
  phase: Phase;
  listeners: ListenerRow[] | null;
  unknown: string | null;
  connect(wanted: Wanted): void;
  disconnect(): void;
}

function Connection({ phase, listeners, unknown, connect, disconnect }: ConnectionProps) {
  const [url, setUrl] = useState("");
  const [client, setClient] = useState(() => `try-${crypto.getRandomValues(new Uint32Array(1))[0]!.toString(36)}`);
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [version, setVersion] = useState<4 | 5>(5);
  const [clean, setClean] = useState(true);
  const [keepAlive, setKeepAlive] = useState("30");
  const rows = listeners?.filter(isWebSocket);
  useEffect(() => {
    const first = rows?.find((row) => row.kind === (location.protocol === "https:" ? "wss" : "ws")) ?? rows?.[0];
    // Not if somebody has named one meanwhile.
    if (first) setUrl((named) => named || `${first.kind}://${location.hostname}:${portOf(first)}/mqtt`);
  }, [listeners]);
  const isOn = phase !== "away";
  const urls = [...new Set((rows ?? []).map((row) => `${row.kind}://${location.hostname}:${portOf(row)}/mqtt`))];
  return (
    <Panel
      title="Connection"
      submit={() =>
        isOn
          ? disconnect()
          : connect({ url, client, user, password, version, clean, keepAlive: Number(keepAlive) || 0 })
      }
    >
      {unknown ? (
        <p class="empty">The listeners could not be read: {unknown}.</p>
      ) : (
        rows?.length === 0 && (
          <p class="empty">
            This node has no WebSocket listener (wsListener or wssListener of mqttServerConfig). Enter the address of
            another node.
          </p>
        )
      )}
      <label class="field">
        Address
        <input
          value={url}
          list="listeners"
          disabled={isOn}
          required
          spellcheck={false}
          onInput={(event) => setUrl(event.currentTarget.value)}
        />
      </label>
      <datalist id="listeners">
        {urls.map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
      <div class="pair">
        <label class="field">
          Client identifier
          <input
            value={client}
            disabled={isOn}
            spellcheck={false}
            onInput={(event) => setClient(event.currentTarget.value)}
          />
        </label>
        <label class="field">
          Version
          <select
            value={String(version)}
            disabled={isOn}
            onChange={(event) => setVersion(event.currentTarget.value === "4" ? 4 : 5)}
          >
            <option value="5">MQTT 5.0</option>
            <option value="4">MQTT 3.1.1</option>
          </select>
        </label>
      </div>
      <div class="pair">
        <label class="field">
          User
          <input
            value={user}
            disabled={isOn}
            autocomplete="off"
            onInput={(event) => setUser(event.currentTarget.value)}
          />
        </label>
        <label class="field">
          Password
          <input
            type="password"
            value={password}
            disabled={isOn}
            autocomplete="off"
            onInput={(event) => setPassword(event.currentTarget.value)}
          />
        </label>
      </div>
      <div class="pair">
        <label class="field">
          Keep alive, s
          <input
            type="number"
            min="0"
            max="65535"
            value={keepAlive}
            disabled={isOn}
            onInput={(event) => setKeepAlive(event.currentTarget.value)}
          />
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={clean}
            disabled={isOn}
            onChange={(event) => setClean(event.currentTarget.checked)}
          />{" "}
          Clean start
        </label>
      </div>
      <div class="buttons">
        <button type="submit" class={isOn ? "" : "primary"}>
          {phase === "away" ? "Connect" : phase === "connecting" ? "Stop" : "Disconnect"}
        </button>
      </div>
    </Panel>
  );
}

const Quality = ({ value, set }: { value: 0 | 1 | 2; set(qos: 0 | 1 | 2): void }) => (
  <label class="field">
    QoS
    <select value={String(value)} onChange={(event) => set(Number(event.currentTarget.value) as 0 | 1 | 2)}>
      <option>0</option>
      <option>1</option>
      <option>2</option>
    </select>
  </label>
);

function Subscribe({
  on,
  subscribe,
  unsubscribe,
}: {
  on: boolean;
  subscribe(filter: string, options: { qos: 0 | 1 | 2; nl: boolean; rap: boolean }): void;
  unsubscribe(filter: string): void;
}) {
  const [filter, setFilter] = useState("#");
  const [qos, setQos] = useState<0 | 1 | 2>(1);
  const [nl, setNl] = useState(false);
  const [rap, setRap] = useState(false);
  return (
    <Panel title="Subscribe" submit={() => subscribe(filter, { qos, nl, rap })}>
      <div class="pair">
        <label class="field">
          Topic filter
          <input value={filter} required spellcheck={false} onInput={(event) => setFilter(event.currentTarget.value)} />
        </label>
        <Quality value={qos} set={setQos} />
      </div>
      <div class="pair">
        <label class="check">
          <input type="checkbox" checked={nl} onChange={(event) => setNl(event.currentTarget.checked)} /> No local
        </label>
        <label class="check">
          <input type="checkbox" checked={rap} onChange={(event) => setRap(event.currentTarget.checked)} /> Retain as
          published
        </label>
      </div>
      <div class="buttons">
        <button type="button" disabled={!on} onClick={() => unsubscribe(filter)}>
          Unsubscribe
        </button>
        <button type="submit" disabled={!on}>
          Subscribe
        </button>
      </div>
    </Panel>
  );
}

function Publish({
  on,
  publish,
  failed,
}: {
  on: boolean;
  publish(topic: string, payload: Uint8Array, options: { qos: 0 | 1 | 2; retain: boolean }): void;
  failed(why: string): void;
}) {
  const [topic, setTopic] = useState("try/it");
  const [payload, setPayload] = useState("hello");
  const [form, setForm] = useState<Form>("text");
  const [qos, setQos] = useState<0 | 1 | 2>(1);
  const [retain, setRetain] = useState(false);
  function submit() {
    try {
      publish(topic, bytesOf(payload, form), { qos, retain });
    } catch (error) {
      failed((error as Error).message);
    }
  }
  return (
    <Panel title="Publish" submit={submit}>
      <div class="pair">
        <label class="field">
          Topic
          <input value={topic} required spellcheck={false} onInput={(event) => setTopic(event.currentTarget.value)} />
        </label>
        <Quality value={qos} set={setQos} />
      </div>
      <label class="field">
        Payload
        <textarea
          rows={4}
          value={payload}
          spellcheck={false}
          onInput={(event) => setPayload(event.currentTarget.value)}
        />
      </label>
      <div class="pair">
        <label class="field">
          Format
          <select value={form} onChange={(event) => setForm(event.currentTarget.value as Form)}>
            <option>text</option>
            <option>json</option>
            <option>hexadecimal</option>
          </select>
        </label>
        <label class="check">
          <input type="checkbox" checked={retain} onChange={(event) => setRetain(event.currentTarget.checked)} /> Retain
        </label>
      </div>
      <div class="buttons">
        <button type="submit" disabled={!on}>
          Publish
        </button>
      </div>
    </Panel>
  );
}

function Packets() {
  const rows = entries.value;
  function pause() {
    isPaused.value = !isPaused.value;
    if (!isPaused.value) entries.value = held;
  }
  function clear() {
    held = [];
    entries.value = held;
  }
  return (
    <section class="panel packets" aria-label="Packets">
      <h2>
        Packets <span class="soft">{rows.length > 0 && count(rows.length)}</span>
        <span class="in-place">
          <button type="button" aria-pressed={isPaused.value} onClick={pause}>
            {isPaused.value ? "Resume" : "Pause"}
          </button>
          <button type="button" onClick={clear}>
            Clear
          </button>
        </span>
      </h2>
      {rows.length === 0 ? (
        <p class="empty">
          Packets that are sent and received appear here, newest first. The page keeps the latest {count(most)}.
        </p>
      ) : (
        <ol class="packet-list" tabIndex={0} aria-label="Packets, the newest first">
          {rows.map((entry) => (
            <li key={entry.number}>
              <span class="soft">{time(entry.at, entry.at, zone.value)}</span>{" "}
              <span class={`state ${entry.isBad ? "bad" : ""}`}>
                <span aria-hidden="true">{entry.sent === null ? "·" : entry.sent ? "→" : "←"}</span>{" "}
                <strong>{entry.what}</strong>
                {entry.sent !== null && (entry.sent ? " sent" : " received")}
                {entry.text && ":"}
              </span>{" "}
              <span class="foreign">{entry.text}</span>
              {entry.more.map((line, n) => (
                <div key={n} class="foreign more">
                  {line}
                </div>
              ))}
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

void lookWhoIsSignedIn();
render(<TryIt />, document.body);
