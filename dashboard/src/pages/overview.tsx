// Is it well, and since when not?
import { useEffect, useRef, useState } from "preact/hooks";
import type { Health, NodeRow, Stats } from "../api/api.types";
import { get, missingOf } from "../api/api";
import { Chart, type Line } from "../parts/chart";
import { heard, offsetMs, showTime, startedAt } from "../api/clock";
import { colors } from "../parts/colors";
import { commandOf } from "../words/command";
import { dropLines } from "../parts/drops";
import { bytes, count, duration, milliseconds, plural, rate, share, unknown, visible, words } from "../words/format";
import { beginLate, ofNodes, sum, times, worst, type Series } from "../api/history";
import type { Mark } from "../api/marks";
import { Failed, Head, Partial, isStale } from "../parts/notices";
import { usePolled, type Polled } from "../api/poll";
import { between, type Rates } from "../api/rates";
import { link, replaceParameters, route } from "../navigation/route";
import { Table } from "../parts/table";
import { State } from "../parts/text";
import { useHistory } from "../api/usehistory";
import { useMarks } from "../api/usemarks";

export function Overview() {
  const stats = usePolled((abort) => get("/stats", {}, {}, abort), 2000, []);
  const health = usePolled((abort) => get("/health", {}, {}, abort), 5000, []);
  const nodes = usePolled((abort) => get("/nodes", {}, {}, abort), 5000, []);
  const rates = useRates(stats.value);
  const { series, problem } = useHistory();
  const marks = useMarks();
  const minutes = route.value.parameters.window === "15" ? 15 : 60;
  return (
    <>
      <Head title="Overview" polled={stats} request="/stats" command={commandOf("nodes")}>
        {verdict(health.value, nodes.value?.items)}
        {Math.abs(offsetMs.value) > 30_000 &&
          ` The clock of this computer is ${duration(Math.abs(offsetMs.value) / 1000)} off.`}
      </Head>
      {missingOf(stats.value).length === 0 && <Partial missing={missingOf(health.value)} again={health.again} />}
      <Figures stats={stats} health={health.value} rates={rates} series={series} />
      {problem && <Failed problem={problem} />}
      <FirstSteps total={stats.value?.total} />
      <div class="section-head">
        <h2>Last {minutes === 60 ? "hour" : "15 minutes"}</h2>
        <span class="soft wide-only">drag to zoom in, double-click to zoom out</span>
        <span class="switch">
          {[15, 60].map((choice) => (
            <button
              key={choice}
              type="button"
              aria-pressed={minutes === choice}
              onClick={() => replaceParameters({ window: choice === 15 ? "15" : null })}
            >
              {choice === 60 ? "1 h" : "15 min"}
            </button>
          ))}
        </span>
      </div>
      <MissingHistory series={series} />
      <Charts series={series} windowSeconds={minutes * 60} marks={marks} />
      <h2 class="section-title">Nodes</h2>
      <NodeTable nodes={nodes} rates={rates} stats={stats.value} series={series} />
    </>
  );
}

function useRates(stats: Stats | null): Rates | null {
  const before = useRef<Stats | null>(null);
  const [rates, setRates] = useState<Rates | null>(null);
  useEffect(() => {
    if (!stats) return;
    heard(stats.as_of);
    setRates(between(before.current, stats));
    before.current = stats;
  }, [stats]);
  return rates;
}

function verdict(health: Health | null, nodes: NodeRow[] | undefined) {
  if (!health) return "";
  const failing = health.nodes.filter((node) => !node.ok);
  if (failing.length > 0)
    return <>{failing.map((node) => `${visible(node.node_name)}: ${node.detail ?? "a check failed"}`).join("; ")}.</>;
  const youngest = nodes ? Math.min(...nodes.map((node) => node.health?.uptime_s ?? Infinity)) : Infinity;
  const since = Number.isFinite(youngest) ? ` since ${startedAt(youngest)}` : "";
  const one = health.nodes.length === 1;
  if (health.alarms.length > 0)
    return (
      <>
        {one ? "The node is up" : `All ${plural(health.nodes.length, "node is", "nodes are")} up`}
        {since}; <a href={link("alarms")}>{plural(health.alarms.length, "alarm needs", "alarms need")} attention</a> (
        {[...new Set(health.alarms.map((alarm) => words(alarm.name)))].join(", ")}).
      </>
    );
  return (
    <>
      {one
        ? "The node is healthy and has been up"
        : `All ${plural(health.nodes.length, "node is", "nodes are")} healthy and have been up`}
      {since}.{versions(nodes)}
    </>
  );
}

/** What runs here. */
function versions(nodes: NodeRow[] | undefined): string {
  const all = [...new Set((nodes ?? []).map((node) => node.version))].sort();
  return all.length === 0 ? "" : ` HeraldMQ ${all.map(visible).join(" and ")}.`;
}

const protocols: Record<string, string> = {
  tcp: "MQTT",
  tls: "MQTT over TLS",
  ws: "MQTT over WebSocket",
  wss: "MQTT over WebSocket and TLS",
};

/** On a broker that nobody has used yet: where clients connect, and how to send a first message. */
function FirstSteps({ total }: { total: Stats["total"] | undefined }) {
  const isUnused = total !== undefined && total.sessions === 0 && total.connections === 0 && total.messages_in === 0;
  const listeners = usePolled(
    (abort) => (isUnused ? get("/listeners", {}, {}, abort) : Promise.resolve(null)),
    10_000,
    [isUnused],
  );
  const rows = (listeners.value?.items ?? []).filter((row) => row.kind in protocols);
  if (!isUnused || rows.length === 0) return null;
  const plain = rows.find((row) => row.kind === "tcp");
  const [host, port] = plain ? place(plain.address) : [];
  const to = `-h ${host} -p ${port}`;
  return (
    <section class="panel first-steps">
      <h2>No client has connected yet</h2>
      <p>
        Clients connect to{" "}
        {rows.map((row, n) => (
          <span key={`${row.node}${row.address}`}>
            {n > 0 && ", "}
            <code>{visible(place(row.address).join(":"))}</code> ({protocols[row.kind]})
          </span>
        ))}
        . To send a first message:
      </p>
      <ul>
        {plain && (
          <li>
            with HeraldMQ: <code>{`heraldmq sub ${to} -t hello`}</code> in one terminal,{" "}
            <code>{`heraldmq pub ${to} -t hello -m world`}</code> in another
          </li>
        )}
        {plain && (
          <li>
            with Mosquitto: <code>{`mosquitto_pub ${to} -t hello -m world`}</code>
          </li>
        )}
        <li>
          in this browser, with a WebSocket listener: <a href="try.html">Try it</a>
        </li>
      </ul>
    </section>
  );
}

/** Host and port of a listener as a client on this computer names them: a listener at all addresses is where the page is from. */
function place(address: string): [host: string, port: string] {
  const at = address.lastIndexOf(":");
  const host = address.slice(0, at);
  return [["0.0.0.0", "[::]"].includes(host) ? location.hostname : host, address.slice(at + 1)];
}

function Figures({
  stats,
  health,
  rates,
  series,
}: {
  stats: Polled<Stats>;
  health: Health | null;
  rates: Rates | null;
  series: Series | null;
}) {
  // The last sample of the history, until two answers have told a rate.
  const perSecond = (name: "messages_in" | "messages_out" | "dropped") =>
    rates?.total[name] ?? (series ? sum(series, `${name}_per_s`).all.at(-1) : null);
  const total = stats.value?.total;
  const least = missingOf(stats.value).length > 0 ? "≥ " : "";
  const stale = isStale(stats) ? "stale" : "";
  const alarms = health?.alarms.length;
  const figures: [name: string, value: string, href: string, tone?: string][] = [
    ["Messages in /s", rate(perSecond("messages_in")), link("topics")],
    ["Messages out /s", rate(perSecond("messages_out")), link("topics")],
    ["Ack p99", milliseconds(series ? worst(series, "publish_ack_p99_ms").at(-1) : null), link("nodes")],
    ["Connections", total ? least + count(total.connections) : unknown, link("clients", { state: "connected" })],
    ["Sessions", total ? least + count(total.sessions) : unknown, link("clients")],
    ["Queued", total ? least + count(total.queued_messages) : unknown, link("queues")],
    ["Drops /s", rate(perSecond("dropped")), link("drops"), (perSecond("dropped") ?? 0) > 0 ? "warn" : ""],
    ["Alarms", alarms === undefined ? unknown : count(alarms), link("alarms"), alarms ? "bad" : ""],
  ];
  return (
    <ul class={`figures ${stale}`}>
      {figures.map(([name, value, href, tone]) => (
        <li key={name}>
          <a href={href}>
            <span class="figure-name">{name}</span>
            <span class={`figure-value ${tone ?? ""}`}>{value}</span>
          </a>
        </li>
      ))}
    </ul>
  );
}

/** Of which nodes the charts know less than of others. */
function MissingHistory({ series }: { series: Series | null }) {
  const late = series ? beginLate(series) : [];
  if (late.length === 0) return null;
  const said = late.map(
    ({ name, from }) =>
      `The history of ${visible(name)}${from === null ? "" : ` before ${showTime(from * 1000).replace(/:\d\d$/, "")}`} is missing.`,
  );
  return (
    <p class="soft" role="status">
      {said.join(" ")} Sums without a node are dashed.
    </p>
  );
}

const dropsTitle = "Drops per second";

function Charts({
  series,
  windowSeconds,
  marks,
}: {
  series: Series | null;
  windowSeconds: number;
  marks: readonly Mark[];
}) {
  const seconds = series ? times(series) : [];
  const total = (name: string, key: string, color: number): Line => {
    const { all, lacking } = series ? sum(series, key) : { all: [], lacking: [] };
    return { name, color, values: all, lacking };
  };
  const highest = (name: string, key: string, color: number): Line => ({
    name,
    color,
    values: series ? worst(series, key) : [],
  });
  const ofEach = (name: string, key: string): Line[] =>
    series && series.nodes.length > 1
      ? series.nodes.map((node) => ({ name: `${node.name} ${name}`, color: 1, values: node.values[key] ?? [] }))
      : [];
  const charts: [title: string, unit: Parameters<typeof Chart>[0]["unit"], lines: Line[], more?: Line[]][] = [
    [
      "Messages per second",
      "rate",
      [total("in", "messages_in_per_s", colors.in), total("out", "messages_out_per_s", colors.out)],
    ],
    [dropsTitle, "rate", dropLines(series)],
    [
      "Time to acknowledge, slowest node",
      "milliseconds",
      [
        highest("p50", "publish_ack_p50_ms", colors.p50),
        highest("p99", "publish_ack_p99_ms", colors.p99),
        highest("longest", "publish_ack_max_ms", colors.longest),
      ],
      ofEach("p99", "publish_ack_p99_ms"),
    ],
    [
      "Time to deliver, slowest node",
      "milliseconds",
      [
        highest("p50", "delivery_p50_ms", colors.p50),
        highest("p99", "delivery_p99_ms", colors.p99),
        highest("longest", "delivery_max_ms", colors.longest),
      ],
      ofEach("p99", "delivery_p99_ms"),
    ],
    ["Queued messages", "count", [total("queued", "queued_messages", colors.queued)]],
    [
      "Connections and sessions",
      "count",
      [total("connections", "connections", colors.connections), total("sessions", "sessions", colors.sessions)],
    ],
    ["CPU of the nodes, % of a core", "cores", ofNodes(series, "cpu_cores")],
    ["Memory of the nodes, bytes", "bytes", ofNodes(series, "memory_bytes")],
  ];
  return (
    <div class="charts">
      {charts.map(([title, unit, lines, more]) => (
        <Chart
          key={title}
          title={title}
          unit={unit}
          seconds={seconds}
          lines={lines}
          windowSeconds={windowSeconds}
          more={more ?? []}
          marks={marks}
          mayBeLog={unit === "milliseconds"}
          stacked={title === dropsTitle}
        />
      ))}
    </div>
  );
}

function NodeTable({
  nodes,
  rates,
  stats,
  series,
}: {
  nodes: Polled<{ items: NodeRow[] }>;
  rates: Rates | null;
  stats: Stats | null;
  series: Series | null;
}) {
  const counts = (node: string) => stats?.nodes.find((one) => one.node === node)?.counts;
  const latest = (node: string, key: string) => series?.nodes.find((one) => one.node === node)?.values[key]?.at(-1);
  const rows = [...(nodes.value?.items ?? [])].sort((a, b) => (a.node_name < b.node_name ? -1 : 1));
  if (nodes.problem && !nodes.value) return <Failed problem={nodes.problem} again={nodes.again} />;
  return (
    <Table
      label="Nodes"
      rows={rows}
      keyOf={(row) => row.node}
      stale={isStale(nodes)}
      tone={(row) => (row.health ? "" : "stale")}
      columns={[
        {
          head: "Node",
          width: 10,
          cell: (row) => <a href={link("nodes", { node: row.node })}>{visible(row.node_name)}</a>,
        },
        {
          head: "State",
          width: 12,
          cell: (row) => (
            <State is={row.reach === "up" ? (row.health || row.state !== "up" ? row.state : "silent") : row.reach} />
          ),
        },
        { head: "In /s", figure: true, width: 7, cell: (row) => rate(rates?.nodes.get(row.node)?.messages_in) },
        { head: "Out /s", figure: true, width: 8, cell: (row) => rate(rates?.nodes.get(row.node)?.messages_out) },
        { head: "Connections", figure: true, width: 12, cell: (row) => count(row.connections) },
        { head: "Queued", figure: true, width: 9, cell: (row) => count(counts(row.node)?.queued_messages) },
        { head: "CPU", figure: true, width: 6, cell: (row) => share(latest(row.node, "cpu_cores")) },
        { head: "Memory", figure: true, width: 10, cell: (row) => bytes(row.health?.memory_bytes) },
        { head: "Disk free", figure: true, width: 10, cell: (row) => bytes(row.health?.disk_free_bytes) },
        { head: "Shards led", figure: true, width: 11, cell: (row) => count(row.health?.shards_led) },
        {
          head: "Clock",
          figure: true,
          width: 9,
          cell: (row) =>
            row.clock_offset_ms == null
              ? unknown
              : `${row.clock_offset_ms < 0 ? "−" : "+"}${Math.abs(row.clock_offset_ms)} ms`,
        },
        { head: "Started", figure: true, width: 13, cell: (row) => startedAt(row.health?.uptime_s) },
      ]}
    />
  );
}
