// What is with this client?
import { useState } from "preact/hooks";
import type { AclAnswer, AclRules, Client, DropRow, QueuedMessage, SubscriptionRow } from "../api.types";
import { EmptyQueue, actOn } from "../actions";
import { fitsPath, get, missingOf, post, problemOf, type Problem } from "../api";
import { clusterNow, secondsSince } from "../clock";
import { commandOf } from "../command";
import { Action, Confirm } from "../dialog";
import { DropTable } from "../drops";
import { EventList } from "../eventlist";
import { bytes, count, duration, middle, plural, unknown, visible, words } from "../format";
import { heldBecause, share } from "../held";
import { Pager, usePages } from "../list";
import { Empty, Failed, Head, Notices, Partial, isStale } from "../notices";
import { usePolled, type Polled } from "../poll";
import { link, route } from "../route";
import { may } from "../session";
import { Table } from "../table";
import { Ago, Bar, ClientLink, Fact, Foreign, Moment, State, TopicLink } from "../text";
import { flow, useClientRates } from "../watch";

const longest = 2000;
const tabs = ["subscriptions", "queue", "drops", "rights", "events"] as const;
type Departure = { at: string; node_name: string; reason: string };

const lookUp = (id: string, abort: AbortSignal) =>
  fitsPath(id)
    ? get("/clients/{client_id}", {}, { client_id: id }, abort)
    : post("/lookup", { client_id: id }, {}, abort);

export function ClientPage() {
  const id = route.value.parameters.id ?? "";
  const polled = usePolled((abort) => lookUp(id, abort), 2000, [id]);
  const [done, setDone] = useState<string | null>(null);
  const short = middle(visible(id), 60);
  const gone = polled.problem?.status === 404;
  return (
    <>
      <Head
        title={`Client ${short}`}
        polled={gone ? undefined : polled}
        request={fitsPath(id) ? `/clients/${id}` : "/lookup"}
        body={fitsPath(id) ? undefined : { client_id: id }}
        command={commandOf("client", [id])}
        actions={
          polled.value &&
          !gone && (
            <Actions
              id={id}
              client={polled.value}
              done={(what) => {
                setDone(what);
                polled.again();
              }}
            />
          )
        }
      >
        <span data-copy={id}>{gone ? absent(polled.problem!) : polled.value && sentence(polled.value)}</span>
        {done && (
          <>
            {" "}
            <strong>{done}</strong>
          </>
        )}
      </Head>
      {polled.value && !gone && (
        <>
          <Facts polled={polled as Polled<Client>} />
          <Tabs id={id} client={polled.value} />
        </>
      )}
      {gone && (
        <p>
          <a href={link("clients", { prefix: id.slice(0, 200) })}>Clients with this prefix</a> ·{" "}
          <a href={link("drops", { client: id.slice(0, 200) })}>drops of this client</a>
        </p>
      )}
    </>
  );
}

function absent(problem: Problem) {
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

const isFull = (client: Client) => {
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

function sentence(client: Client) {
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

function Actions({ id, client, done }: { id: string; client: Client; done(what: string): void }) {
  const [asked, setAsked] = useState<"disconnect" | "end" | "ban" | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const name = middle(visible(id), 40);
  const close = () => setAsked(null);
  async function act(action: "disconnect" | "end_session") {
    await actOn(id, action);
    done(action === "disconnect" ? "The connection was closed." : "The session was ended.");
  }
  async function disconnect() {
    close();
    try {
      await act("disconnect");
    } catch (error) {
      setProblem(problemOf(error));
    }
  }
  const lost = client.queue?.messages ?? 0;
  return (
    <span class="in-place">
      {problem && <span class="state bad">{visible(problem.detail)}</span>}
      {asked === "disconnect" ? (
        <>
          Disconnect {name}? It may come back.{" "}
          <button type="button" class="danger" onClick={disconnect}>
            Disconnect
          </button>
          <button type="button" onClick={() => setAsked("ban")}>
            Ban…
          </button>
          <button type="button" onClick={close}>
            Cancel
          </button>
        </>
      ) : (
        <>
          <Action needs="operator" disabled={client.state === "away"} onClick={() => setAsked("disconnect")}>
            Disconnect
          </Action>
          <Action needs="operator" onClick={() => setAsked("end")}>
            End session…
          </Action>
          <Action needs="operator" onClick={() => setAsked("ban")}>
            Ban…
          </Action>
        </>
      )}
      {asked === "end" && (
        <Confirm
          title={`End the session of ${name}?`}
          deed="End session"
          danger
          typed={lost > 0 ? id : null}
          act={() => act("end_session")}
          close={close}
        >
          <p>
            The session is deleted with {plural(lost, "queued message")} and{" "}
            {plural(client.subscriptions?.count ?? 0, "subscription")}.{" "}
            {client.state === "connected"
              ? "The client is disconnected; it can reconnect with a new session."
              : "The client is away."}
          </p>
        </Confirm>
      )}
      {asked === "ban" && <Ban id={id} name={name} close={close} done={done} />}
    </span>
  );
}

function Ban({ id, name, close, done }: { id: string; name: string; close(): void; done(what: string): void }) {
  const [seconds, setSeconds] = useState("3600");
  const [reason, setReason] = useState("");
  async function act() {
    await post("/bans", {
      client: id,
      seconds: seconds === "" ? null : Number(seconds),
      reason: reason || "by the dashboard",
    });
    await post("/actions", { action: "disconnect", client_ids: [id] });
    done("The client is banned.");
  }
  return (
    <Confirm title={`Ban ${name}?`} deed="Ban" danger act={act} close={close}>
      <p>The client is disconnected and cannot connect until the ban ends. Its session is kept.</p>
      <label class="field">
        For
        <select value={seconds} onChange={(event) => setSeconds(event.currentTarget.value)}>
          <option value="600">10 minutes</option>
          <option value="3600">1 hour</option>
          <option value="86400">1 day</option>
          <option value="">until the ban is removed</option>
        </select>
      </label>
      <label class="field">
        Reason
        <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
    </Confirm>
  );
}

function Facts({ polled }: { polled: Polled<Client> }) {
  const client = polled.value!;
  const { connection, session, queue, will, last_departure: left } = client;
  const drops = client.recent_drops.length;
  const rates = useClientRates(client.client_id, client.state === "connected");
  return (
    <div class={`facts ${isStale(polled) ? "stale" : ""}`}>
      <section>
        <h2>
          Connection <State is={client.state} />
        </h2>
        <dl>
          {connection && (
            <>
              <Fact name="Address">{connection.address}</Fact>
              <Fact name="Node">
                {client.node && (
                  <a href={link("nodes", { node: client.node })}>{visible(client.node_name ?? client.node)}</a>
                )}
              </Fact>
              <Fact name="Listener">{connection.listener ?? unknown}</Fact>
              <Fact name="Since">
                <Moment at={connection.connected_at} />
              </Fact>
              <Fact name="Messages in">{flow(rates?.messages_in_per_s, rates?.bytes_in_per_s)}</Fact>
              <Fact name="Messages out">{flow(rates?.messages_out_per_s, rates?.bytes_out_per_s)}</Fact>
              {connection.write_blocked && (
                <Fact name="Socket">
                  <State is="full" say="the client does not read" />
                </Fact>
              )}
            </>
          )}
          {client.held && (
            <Fact name="Waits">
              {client.held.since ? <State is="full" say="its packets wait" /> : "not now"}:{" "}
              {heldBecause(client.held.reason)}
              {client.held.subscriber && (
                <>
                  {" "}
                  (<ClientLink id={client.held.subscriber} most={20} />)
                </>
              )}
              ; {share(client.held)} of the last minute
              {client.held.since && (
                <>
                  , since <Moment at={client.held.since} />
                </>
              )}
              {client.held.option && (
                <>
                  ;{" "}
                  <code class="foreign">
                    {visible(client.held.option)}
                    {client.held.limit !== null && ` = ${client.held.limit}`}
                  </code>
                </>
              )}
            </Fact>
          )}
          <Fact name="User">{client.user === null ? "none (anonymous)" : <Foreign text={client.user} />}</Fact>
          <Fact name="Last left">
            {left ? (
              <>
                <Moment at={left.at} /> from {visible(left.node_name)}: {words(left.reason)}
              </>
            ) : (
              unknown
            )}
          </Fact>
        </dl>
      </section>
      <section>
        <h2>Session</h2>
        <dl>
          <Fact name="Kind">
            {session === null
              ? unknown
              : session.durable
                ? `durable, ends ${session.expiry_s === null ? "never" : `${duration(session.expiry_s)} after the connection`}`
                : "ends with the connection"}
          </Fact>
          {session?.ends_at && (
            <Fact name="Ends">
              <Moment at={session.ends_at} />
            </Fact>
          )}
          <Fact name="Class">{session?.class ? visible(session.class) : unknown}</Fact>
          <Fact name="Shard">
            {session?.shard == null ? (
              unknown
            ) : (
              <a href={link("shards", { shard: `inbox ${session.shard}` })}>inbox {session.shard}</a>
            )}
          </Fact>
        </dl>
        <h2>CONNECT packet</h2>
        <dl>
          {connection && (
            <>
              <Fact name="Version">MQTT {connection.version}</Fact>
              <Fact name="Keep alive">{connection.keep_alive_s === 0 ? "off" : `${connection.keep_alive_s} s`}</Fact>
              <Fact name="Session expiry">{session === null ? unknown : expiry(session.expiry_s)}</Fact>
              <Fact name="Receive max.">{count(connection.receive_maximum)} in flight</Fact>
              <Fact name="Max. packet">
                {connection.maximum_packet_bytes === null ? "no limit" : bytes(connection.maximum_packet_bytes)}
              </Fact>
            </>
          )}
          <Fact name="Will">
            {will ? (
              <>
                <Foreign text={will.topic} />, QoS {will.qos}
                {will.retain && ", retained"}
                {will.delay_s > 0 && `, after ${duration(will.delay_s)}`}
              </>
            ) : (
              "none"
            )}
          </Fact>
        </dl>
      </section>
      <section>
        <h2>Queue {isFull(client) && <State is="full" />}</h2>
        <dl>
          <Fact name="Messages">
            {queue ? (
              <>
                {count(queue.messages)} of {count(queue.limit_messages)}{" "}
                <Bar part={queue.limit_messages ? queue.messages / queue.limit_messages : null} />
              </>
            ) : (
              unknown
            )}
          </Fact>
          <Fact name="Bytes">{queue ? `${bytes(queue.bytes)} of ${bytes(queue.limit_bytes)}` : unknown}</Fact>
          <Fact name="Oldest">
            {queue?.oldest_at ? (
              <>
                <Ago at={queue.oldest_at} /> ago
              </>
            ) : (
              unknown
            )}
          </Fact>
          <Fact name="In flight">
            {count(client.in_flight)}
            {connection && ` of ${count(connection.receive_maximum)}`}
          </Fact>
          {client.waits_for && (
            <Fact name="Waits for">
              {client.waits_for === "receive_maximum"
                ? "acknowledgements: its receive maximum is reached"
                : "the acknowledgement of its oldest message in flight"}
            </Fact>
          )}
          <Fact name="Holds back">
            <Clients ids={client.holds_back} />
          </Fact>
          <Fact name="Held by">
            <Clients ids={client.held_by} />
          </Fact>
          <Fact name="Drops">
            <a href={link("client", { id: client.client_id, tab: "drops" })}>
              {drops === 0 ? "none remembered" : `last ${duration(secondsSince(client.recent_drops[0]!.at))} ago`}
            </a>
          </Fact>
        </dl>
      </section>
    </div>
  );
}

const expiry = (seconds: number | null) =>
  seconds === null ? "never" : seconds === 0 ? "at the end of the connection" : duration(seconds);

const Clients = ({ ids }: { ids: string[] }) =>
  ids.length === 0 ? (
    <>nobody</>
  ) : (
    <>
      {ids.slice(0, 5).map((id, n) => (
        <span key={id}>
          {n > 0 && ", "}
          <ClientLink id={id} most={20} />
        </span>
      ))}
      {ids.length > 5 && `, ${count(ids.length - 5)} more`}
    </>
  );

function Tabs({ id, client }: { id: string; client: Client }) {
  const tab = tabs.find((name) => name === route.value.parameters.tab) ?? "subscriptions";
  return (
    <>
      <nav class="tabs" aria-label="Parts of the client">
        {tabs.map((name) => (
          <a key={name} href={link("client", { id, tab: name })} aria-current={name === tab ? "true" : undefined}>
            {name[0]!.toUpperCase() + name.slice(1)}
            {name === "subscriptions" && ` ${count(client.subscriptions?.count)}`}
            {name === "queue" && ` ${count(client.queue?.messages)}`}
          </a>
        ))}
      </nav>
      {tab === "subscriptions" && <Subscriptions id={id} client={client} />}
      {tab === "queue" && <Queue id={id} waiting={client.queue?.messages ?? 0} />}
      {tab === "drops" && <Drops id={id} client={client} />}
      {tab === "rights" && <Rights key={id} id={id} />}
      {tab === "events" &&
        (id.length > longest ? (
          <Empty>The identifier is too long to ask for its events.</Empty>
        ) : (
          <ClientEvents id={id} />
        ))}
    </>
  );
}

/** What the nodes remember of the last day, and what happens now. */
function ClientEvents({ id }: { id: string }) {
  const [since] = useState(() => new Date(clusterNow() - 86_400_000).toISOString());
  return <EventList query={{ client_id: id, since }} />;
}

function Subscriptions({ id, client }: { id: string; client: Client }) {
  const [asked, setAsked] = useState<string | null>(null);
  const [struck, setStruck] = useState<string[]>([]);
  const [problem, setProblem] = useState<Problem | null>(null);
  const first = client.subscriptions?.first ?? [];
  const pages = usePages<SubscriptionRow>(
    async (after, abort) =>
      fitsPath(id)
        ? get("/clients/{client_id}/subscriptions", { after }, { client_id: id }, abort)
        : { items: first, next: null },
    5000,
    [id],
  );
  async function unsubscribe(filter: string) {
    setAsked(null);
    try {
      await post("/unsubscribe", { client_id: id, filter });
      setStruck([...struck, filter]);
      pages.again();
    } catch (error) {
      setProblem(problemOf(error));
    }
  }
  const rows = pages.value?.items ?? first;
  return (
    <>
      <Notices polled={pages} />
      {problem && <Failed problem={problem} />}
      {rows.length === 0 ? (
        <Empty>This client has no subscriptions.</Empty>
      ) : (
        <Table
          label="Subscriptions"
          open
          rows={rows}
          keyOf={(row) => row.given_filter}
          tone={(row) => (struck.includes(row.given_filter) ? "struck" : "")}
          columns={[
            { head: "Filter", cell: (row) => <Foreign text={row.given_filter} most={60} /> },
            { head: "QoS", width: 7, figure: true, cell: (row) => row.qos },
            {
              head: "Options",
              width: 32,
              cell: (row) =>
                [
                  row.no_local && "no local",
                  row.retain_as_published && "retain as published",
                  row.identifier !== null && `identifier ${row.identifier}`,
                ]
                  .filter(Boolean)
                  .join(", "),
            },
            {
              head: "Actions",
              width: 34,
              figure: true,
              cell: (row) =>
                asked === row.given_filter ? (
                  <span class="in-place">
                    Unsubscribe the client?{" "}
                    <button type="button" class="danger" onClick={() => void unsubscribe(row.given_filter)}>
                      Unsubscribe
                    </button>
                    <button type="button" onClick={() => setAsked(null)}>
                      Cancel
                    </button>
                  </span>
                ) : (
                  <Action needs="operator" onClick={() => setAsked(row.given_filter)}>
                    Unsubscribe
                  </Action>
                ),
            },
          ]}
        />
      )}
      <Pager pages={pages} what="subscription" />
    </>
  );
}

function Queue({ id, waiting }: { id: string; waiting: number }) {
  const payloads = may("operator");
  const pages = usePages<QueuedMessage>(
    (after, abort) =>
      payloads
        ? post("/queue", { client_id: id, after: after ?? null, limit: 50 }, {}, abort)
        : get("/sessions/{client_id}/queue", { after, limit: 50 }, { client_id: id }, abort),
    10_000,
    [id, payloads],
  );
  const [shown, setShown] = useState<QueuedMessage | null>(null);
  const [asked, setAsked] = useState(false);
  const [done, setDone] = useState<string | null>(null);
  const rows = pages.value?.items ?? [];
  if (!payloads && !fitsPath(id))
    return <Empty>Reading this queue needs the role operator: the client identifier does not fit into a URL.</Empty>;
  return (
    <>
      {pages.problem ? (
        <Failed problem={pages.problem} again={pages.again} />
      ) : (
        <Partial missing={missingOf(pages.value)} />
      )}
      {(waiting > 0 || rows.length > 0) && (
        <p class="in-place">
          <Action needs="operator" onClick={() => setAsked(true)}>
            Empty queue…
          </Action>
        </p>
      )}
      {done && <p role="status">{done}</p>}
      {asked && (
        <EmptyQueue
          id={id}
          waiting={waiting}
          close={() => setAsked(false)}
          done={(what) => {
            setDone(what);
            pages.again();
          }}
        />
      )}
      {pages.value &&
        (rows.length === 0 ? (
          <Empty>The queue is empty.</Empty>
        ) : (
          <Table
            label="Queued messages, the oldest first"
            open
            rows={rows}
            keyOf={(row) => row.sequence}
            columns={[
              { head: "Sequence", width: 13, figure: true, cell: (row) => row.sequence },
              { head: "Topic", width: 40, cell: (row) => <TopicLink topic={row.topic} /> },
              { head: "QoS", width: 6, figure: true, cell: (row) => row.qos },
              { head: "Size", width: 10, figure: true, cell: (row) => bytes(row.payload_bytes) },
              {
                head: "Expires",
                width: 14,
                cell: (row) => (row.expires_at ? <Moment at={row.expires_at} /> : "never"),
              },
              {
                head: "Payload",
                cell: (row) =>
                  row.payload === null ? (
                    <span class="soft">{payloads ? "too large" : "needs operator"}</span>
                  ) : (
                    <button type="button" class="quiet foreign" onClick={() => setShown(row)}>
                      {preview(row)}
                    </button>
                  ),
              },
            ]}
          />
        ))}
      <Pager pages={pages} what="message" />
      {shown && (
        <Confirm
          title="Payload"
          deed="Copy"
          act={() => navigator.clipboard.writeText(shown.payload ?? "")}
          close={() => setShown(null)}
        >
          <p>
            <Foreign text={shown.topic} most={80} />, {bytes(shown.payload_bytes)},{" "}
            {shown.encoding === "utf8" ? "text" : "base64"}
          </p>
          <div class="scroll" tabIndex={0} role="region" aria-label="Payload">
            <code class="foreign">{visible((shown.payload ?? "").slice(0, 4096))}</code>
          </div>
        </Confirm>
      )}
    </>
  );
}

const preview = (row: QueuedMessage) =>
  row.payload === ""
    ? "(empty)"
    : `${row.encoding === "utf8" ? "" : "base64 "}${middle(visible((row.payload ?? "").slice(0, 400)), 60)}`;

function Drops({ id, client }: { id: string; client: Client }) {
  const pages = usePages<DropRow>((after, abort) => get("/drops", { client: id, after, limit: 50 }, {}, abort), 5000, [
    id,
  ]);
  if (id.length > longest)
    return (
      <Empty>
        {client.recent_drops.length === 0
          ? "The nodes remember no dropped message of this client."
          : client.recent_drops.map((drop) => `${words(drop.reason)}: ${visible(drop.topic)}`).join("; ")}
      </Empty>
    );
  return (
    <>
      <Notices polled={pages} />
      {pages.value &&
        (pages.value.items.length === 0 ? (
          <Empty>The nodes remember no dropped message of this client.</Empty>
        ) : (
          <DropTable rows={pages.value.items} of="client" />
        ))}
      <Pager pages={pages} what="drop" />
    </>
  );
}

function Rights({ id }: { id: string }) {
  const [action, setAction] = useState("publish");
  const [topic, setTopic] = useState("");
  const [answer, setAnswer] = useState<AclAnswer | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const rules = usePolled((abort) => post("/acl/rules", { client_id: id }, {}, abort), 30_000, [id]);
  async function ask(event: Event) {
    event.preventDefault();
    try {
      setAnswer(await post("/acl/test", { client_id: id, action, topic }));
      setProblem(null);
    } catch (error) {
      setProblem(problemOf(error));
    }
  }
  return (
    <>
      <form class="filters" onSubmit={ask}>
        <label class="field">
          Action
          <select value={action} onChange={(event) => setAction(event.currentTarget.value)}>
            {["publish", "retain", "subscribe", "receive"].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label class="field wide">
          Topic or filter
          <input value={topic} onInput={(event) => setTopic(event.currentTarget.value)} spellcheck={false} />
        </label>
        <button type="submit" disabled={topic === ""}>
          Test
        </button>
      </form>
      {problem && <Failed problem={problem} />}
      {answer && (
        <p>
          {answer.may ? <State is="ok" say="allowed" /> : <State is="refused" say="denied" />}:{" "}
          {decided[answer.by] ?? words(answer.by)}
          {answer.line !== null &&
            `, ${answer.by === "file" || answer.by === "list" ? "line" : "number"} ${answer.line}`}
          .
        </p>
      )}
      <h2 class="section-title">Rules that apply</h2>
      <Notices polled={rules} />
      {rules.value && <Rules found={rules.value} by={answer?.by ?? null} line={answer?.line ?? null} />}
    </>
  );
}

const decided: Record<string, string> = {
  superuser: "the client is a superuser",
  login: "by a rule from its login",
  list: "by the rules for everybody",
  file: "by the rule file",
  no_match: "no rule matches",
};

/** `by`, `line`: the rule that decided the test. */
function Rules({ found, by, line }: { found: AclRules; by: string | null; line: number | null }) {
  const end = found.no_match === "allow" ? "allowed" : "denied";
  if (found.superuser)
    return <p class="answer">The client is a superuser: its login allows everything, and no rule is checked.</p>;
  return (
    <>
      <p class="answer">
        {found.known_by === "nothing" &&
          "The client is not connected and has no session, so these are the rules for a client without a user and an address. "}
        {found.known_by === "session" &&
          "The client is away: its address is not known, so rules that name an address are not listed. "}
        {found.rules.length === 0
          ? "No rule for everybody and none of the rule file applies to this client: every action is "
          : "The first rule that matches an action and its topic decides. An action that no rule matches is "}
        {end} (<code>authorization.noMatch</code>).
        {found.known_by === "connection" &&
          " Rules that came with its login are checked first and are not listed here."}
      </p>
      {found.rules.length > 0 && (
        <Table
          label="Rules that apply"
          open={found.more}
          rows={found.rules}
          keyOf={(rule) => `${rule.by} ${rule.line}`}
          tone={(rule) => (rule.by === by && rule.line === line ? "chosen" : "")}
          columns={[
            { head: "From", width: 8, cell: (rule) => (rule.by === "list" ? "everybody" : "file") },
            { head: "Line", width: 8, figure: true, cell: (rule) => count(rule.line) },
            {
              head: "Rule",
              cell: (rule) => (
                <code class="wrap" data-copy={rule.text}>
                  {visible(rule.text)}
                </code>
              ),
            },
          ]}
        />
      )}
      {found.more && <Empty>The first {plural(found.rules.length, "rule is", "rules are")} shown.</Empty>}
    </>
  );
}
