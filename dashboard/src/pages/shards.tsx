// Is load spread, and what does the balancer do?
import { useEffect, useState } from "preact/hooks";
import type { NodeId, ShardRow, SplitStatus } from "../api/api.types";
import { get, missingOf, post } from "../api/api";
import { half, led, nameOf, outcome, undoneFor, type Begun } from "../api/begun";
import { Chart } from "../parts/chart";
import { colors } from "../parts/colors";
import { commandOf } from "../words/command";
import { Action, Confirm } from "../parts/dialog";
import { bytes, count, duration, middle, plural, share, unknown, visible, words } from "../words/format";
import { ofNodes, times, worst } from "../api/history";
import type { Mark } from "../api/marks";
import { Empty, Failed, Head, Told, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { link, route } from "../navigation/route";
import { Table } from "../parts/table";
import { Fact, State } from "../parts/text";
import { useHistory, useShardHistory } from "../api/usehistory";
import { useMarks } from "../api/usemarks";

/** The stores whose shards are split by slots. */
const stores = ["inbox", "session", "retain"] as const;
const order = [...stores, "control"] as const;
const slots = 65_536;

/** The share of a core that its leader needs for it. */
const load = (shard: ShardRow) =>
  shard.load ? (shard.load.propose_us + shard.load.apply_us + shard.load.read_us) / 1e6 : null;

const needs = { transfer: "operator", split: "administrator" } as const;

export function Shards() {
  const [begun, setBegun] = useState<Begun | null>(null);
  const [quick, setQuick] = useState(false);
  const [asked, setAsked] = useState<{ what: Begun["what"]; row: ShardRow } | null>(null);
  const marks = useMarks();
  const shards = usePolled((abort) => get("/shards", {}, {}, abort), quick ? 1000 : 5000, []);
  const rows = [...(shards.value?.items ?? [])].sort(
    (a, b) => order.indexOf(a.store) - order.indexOf(b.store) || (a.first_slot ?? 0) - (b.first_slot ?? 0),
  );
  const chosen = rows.find((row) => nameOf(row) === route.value.parameters.shard);
  // What came before the change was begun says nothing of it.
  const seen = begun && (shards.at ?? 0) >= begun.since ? outcome(begun, rows, shards.at!) : null;
  const waits = begun !== null && !seen?.over;
  useEffect(() => setQuick(waits), [waits]);
  const isBegun = (row: ShardRow) => waits && nameOf(row) === nameOf(begun);
  return (
    <>
      <Head title="Shards" polled={shards} request="/shards" command={commandOf("shards")}>
        {shards.value && sentence(rows)}
      </Head>
      <Told>{seen?.says}</Told>
      {shards.value && rows.length === 0 && (
        <Empty>
          {missingOf(shards.value).length > 0 ? "None on the nodes that answered." : "This broker has no stores."}
        </Empty>
      )}
      <Charts marks={marks} />
      {stores.map((store) => (
        <Slots key={store} store={store} rows={rows.filter((row) => row.store === store && row.first_slot !== null)} />
      ))}
      <Table
        label="Shards"
        rows={rows}
        keyOf={(row) => nameOf(row)}
        stale={isStale(shards)}
        tone={(row) => (row === chosen ? "chosen" : "")}
        columns={[
          {
            head: "Shard",
            width: 12,
            cell: (row) => <a href={link("shards", { shard: nameOf(row) })}>{nameOf(row)}</a>,
          },
          {
            head: "Slots",
            width: 10,
            cell: (row) => (row.first_slot === null ? unknown : `${row.first_slot}–${row.last_slot}`),
          },
          {
            head: "Leader",
            width: 8,
            cell: (row) =>
              row.leader === null ? (
                <State is="down" say="none" />
              ) : (
                <a href={link("nodes", { node: row.leader })}>{visible(row.leader_name ?? row.leader)}</a>
              ),
          },
          {
            head: "Voters",
            width: 16,
            cell: (row) =>
              [...row.voters]
                .sort((a, b) => (a.node_name < b.node_name ? -1 : 1))
                .map((voter, n) => (
                  <span key={voter.node} class={voter.reach === "up" ? "" : "state bad"}>
                    {n > 0 && " "}
                    {visible(voter.node_name)}
                    {voter.reach !== "up" && ` ${voter.reach ?? unknown}`}
                  </span>
                )),
          },
          { head: "Load", width: 8, figure: true, cell: (row) => share(load(row)) },
          { head: "Sessions", width: 8, figure: true, cell: (row) => count(row.holds?.sessions) },
          { head: "Messages", width: 9, figure: true, cell: (row) => count(row.holds?.messages) },
          {
            head: "Last decision",
            cell: (row) =>
              isBegun(row) ? (
                <State
                  is="leaving"
                  say={begun!.what === "transfer" ? `moving to ${visible(begun!.toName)}` : "being split"}
                />
              ) : row.last_decision ? (
                <span title={row.last_decision.reason}>
                  {words(row.last_decision.decision)} for {duration(row.last_decision.seconds)}
                  {named(row.last_decision)}
                </span>
              ) : (
                unknown
              ),
          },
          {
            head: "Actions",
            width: 26,
            figure: true,
            cell: (row) => (
              <span class="in-place end">
                <Action
                  needs={needs.transfer}
                  unless={notTransferred(row)}
                  onClick={() => setAsked({ what: "transfer", row })}
                >
                  Move lead…
                </Action>
                <Action needs={needs.split} unless={notSplit(row)} onClick={() => setAsked({ what: "split", row })}>
                  Split…
                </Action>
              </span>
            ),
          },
        ]}
      />
      {chosen && <Details row={chosen} marks={marks} />}
      {asked?.what === "transfer" && (
        <Transfer
          row={asked.row}
          rows={rows}
          close={() => setAsked(null)}
          done={(what) => {
            setBegun(what);
            shards.again();
          }}
        />
      )}
      {asked?.what === "split" && (
        <Split
          row={asked.row}
          rows={rows}
          close={() => setAsked(null)}
          done={(what) => {
            setBegun(what);
            shards.again();
          }}
        />
      )}
    </>
  );
}

const candidates = (row: ShardRow) => row.voters.filter((voter) => voter.node !== row.leader && voter.reach === "up");
const notTransferred = (row: ShardRow) =>
  row.leader === null
    ? "it has no leader"
    : row.voters.length < 2
      ? "it has no other voter"
      : candidates(row).length === 0
        ? "no other voter can be reached"
        : null;
const notSplit = (row: ShardRow) =>
  row.store === "control"
    ? "it is never split"
    : row.leader === null
      ? "it has no leader"
      : half(row) === null
        ? "it has only one slot"
        : null;
const begin = (what: Begun["what"], { store, shard, term }: ShardRow, more: Partial<Begun>): Begun => ({
  what,
  store,
  shard,
  term,
  to: "",
  toName: "",
  at: 0,
  since: Date.now(),
  ...more,
});
const loadOf = (rows: ShardRow[], node: NodeId | null) =>
  rows.filter((row) => row.leader === node).reduce((sum, row) => sum + (load(row) ?? 0), 0);
const leads = (rows: ShardRow[], node: NodeId) =>
  `${plural(led(rows).get(node) ?? 0, "shard")} led, ${share(loadOf(rows, node))} of a core`;

interface ChangeProps {
  row: ShardRow;
  rows: ShardRow[];
  close(): void;
  done(what: Begun): void;
}

function Transfer({ row, rows, close, done }: ChangeProps) {
  // The one that has least to do stands first.
  const [voters] = useState(() => candidates(row).sort((a, b) => loadOf(rows, a.node) - loadOf(rows, b.node)));
  const [to, setTo] = useState(voters[0]?.node ?? "");
  const toName = voters.find((voter) => voter.node === to)?.node_name ?? "";
  const uneven = undoneFor(row, to, rows);
  const away = row.voters.filter((voter) => voter.reach !== "up");
  async function act() {
    const what = begin("transfer", row, { to, toName });
    await post("/cluster/transfer-leader", { store: row.store, shard: row.shard, to });
    done(what);
  }
  return (
    <Confirm
      title={`Move the lead of ${nameOf(row)}?`}
      deed={`Make ${visible(toName)} the leader`}
      act={act}
      close={close}
    >
      <p>
        Clients stay connected. Requests to this shard wait until the new leader has taken over, usually for a few
        milliseconds.
      </p>
      <dl>
        <Fact name="From">
          {visible(row.leader_name ?? row.leader ?? unknown)}: {leads(rows, row.leader!)}
        </Fact>
        <Fact name="This shard">
          {row.load
            ? `${share(load(row))} of a core, ${plural(row.load.requests, "request")} a second`
            : "its load is not known"}
        </Fact>
        {away.length > 0 && (
          <Fact name="Not reached">
            <State is="down" say={`${away.map((voter) => visible(voter.node_name)).join(", ")} cannot lead now`} />
          </Fact>
        )}
      </dl>
      <label class="field">
        To
        <select value={to} onChange={(event) => setTo(event.currentTarget.value)}>
          {voters.map((voter) => (
            <option key={voter.node} value={voter.node}>
              {visible(voter.node_name)}: {leads(rows, voter.node)}
            </option>
          ))}
        </select>
      </label>
      <p class="soft small reserve">
        {uneven
          ? `${visible(toName)} would lead ${plural(uneven.more, "shard")}, and ${visible(uneven.name)} ${uneven.has === 0 ? "none" : count(uneven.has)}: the cluster balances leaders automatically and may undo the transfer immediately.`
          : "The cluster also moves leaders automatically: if the load of the nodes becomes uneven, it may undo the transfer after a minute."}
      </p>
    </Confirm>
  );
}

function Split({ row, rows, close, done }: ChangeProps) {
  const [at, setAt] = useState(() => String(half(row)));
  const [first, last] = [row.first_slot ?? 0, row.last_slot ?? 0];
  const slot = Number(at);
  const fits = /^\d+$/.test(at) && slot > first && slot <= last;
  const byLoad = row.load?.half;
  async function act() {
    const what = begin("split", row, { at: slot });
    await post("/cluster/split", { store: row.store, shard: row.shard, at: slot });
    done(what);
  }
  return (
    <Confirm
      title={`Split ${nameOf(row)}?`}
      deed={`Split ${nameOf(row)}`}
      danger
      disabled={!fits}
      act={act}
      close={close}
    >
      <p>
        A new shard with the same voters takes over the upper slots and all{" "}
        {row.store === "retain" ? "topics" : "sessions"} that belong to them. Clients stay connected; requests to this
        shard wait for a few milliseconds. <strong>Shards are never merged</strong>, and after the first split, earlier
        versions of the broker refuse to start with this data folder.
      </p>
      <dl>
        <Fact name="Slots">
          {first}–{last}, {count(last - first + 1)} of {count(slots)}
        </Fact>
        <Fact name="Load">
          {row.load
            ? `${share(load(row))} of a core${byLoad ? `, of which ${byLoad.below} % below slot ${byLoad.slot}` : ""}`
            : "not known"}
        </Fact>
        <Fact name="This shard keeps">{fits ? `${first}–${slot - 1}` : unknown}</Fact>
        <Fact name="New shard">
          {fits
            ? `${row.store} ${slot} with ${slot}–${last}; the store then has ${plural(rows.filter(({ store }) => store === row.store).length + 1, "shard")}`
            : `begins between ${first + 1} and ${last}`}
        </Fact>
      </dl>
      <label class="field">
        First slot of the new shard
        <input
          value={at}
          inputMode="numeric"
          aria-invalid={!fits}
          onInput={(event) => setAt(event.currentTarget.value.trim())}
          autocomplete="off"
        />
      </label>
    </Confirm>
  );
}

const hour = 3600;

/** What the shards that a node leads cost it, and how long the log and the stores take. */
function Charts({ marks }: { marks: readonly Mark[] }) {
  const { series, problem } = useHistory();
  const seconds = series ? times(series) : [];
  const slowest = (of: string) => [
    { name: "p99", color: colors.p99, values: series ? worst(series, `${of}_p99_ms`) : [] },
    { name: "longest", color: colors.longest, values: series ? worst(series, `${of}_max_ms`) : [] },
  ];
  if (problem && !series) return <Failed problem={problem} />;
  return (
    <div class="charts">
      <Chart
        title="Load by leader, % of a core"
        unit="cores"
        seconds={seconds}
        windowSeconds={hour}
        marks={marks}
        lines={ofNodes(series, "shards_cpu_cores")}
      />
      <Chart
        title="Log sync time, slowest node"
        unit="milliseconds"
        mayBeLog
        seconds={seconds}
        windowSeconds={hour}
        marks={marks}
        lines={slowest("log_sync")}
      />
      <Chart
        title="Apply time, slowest node"
        unit="milliseconds"
        mayBeLog
        seconds={seconds}
        windowSeconds={hour}
        marks={marks}
        lines={slowest("apply")}
      />
    </div>
  );
}

/** The last hour of a shard: the line is of the node that led it. */
function LoadOf({ row, marks }: { row: ShardRow; marks: readonly Mark[] }) {
  const { series, problem } = useShardHistory(row.store, row.shard);
  const seconds = series ? times(series) : [];
  if (problem && !series) return <Failed problem={problem} />;
  return (
    <div class="charts">
      <Chart
        title={`Load of ${nameOf(row)}, % of a core`}
        unit="cores"
        seconds={seconds}
        windowSeconds={hour}
        marks={marks}
        lines={ofNodes(series, "cpu_cores")}
      />
      <Chart
        title="Requests per second"
        unit="rate"
        seconds={seconds}
        windowSeconds={hour}
        marks={marks}
        lines={ofNodes(series, "requests_per_s")}
      />
      <Chart
        title="Wait before proposal"
        unit="milliseconds"
        mayBeLog
        seconds={seconds}
        windowSeconds={hour}
        marks={marks}
        lines={ofNodes(series, "wait_ms")}
      />
    </div>
  );
}

/** What the table has no place for. */
function Details({ row, marks }: { row: ShardRow; marks: readonly Mark[] }) {
  return (
    <section class="panel details" aria-label={nameOf(row)}>
      <h2>{nameOf(row)}</h2>
      <dl class="columns">
        <Fact name="Term">
          {row.term}, version {row.version ?? unknown}
        </Fact>
        <Fact name="Holds">{bytes(row.holds?.bytes)}</Fact>
        <Fact name="Requests">{row.load ? `${count(row.load.requests)} a second` : unknown}</Fact>
        <Fact name="Wait">
          {row.load ? `${(row.load.wait_us / 1000).toFixed(2)} ms before a request is proposed` : unknown}
        </Fact>
        <Fact name="Half the load">
          {row.load?.half ? `below slot ${row.load.half.slot} (${row.load.half.below} %)` : unknown}
        </Fact>
        <Fact name="Learners">
          {row.learners.length === 0 ? "none" : row.learners.map((learner) => visible(learner.node_name)).join(", ")}
        </Fact>
        <Fact name="Last decision">
          {row.last_decision ? `${decision(row.last_decision)}, for ${duration(row.last_decision.seconds)}` : unknown}
        </Fact>
      </dl>
      <LoadOf row={row} marks={marks} />
    </section>
  );
}

const named = (decision: SplitStatus) =>
  decision.names?.length > 0 ? `: ${middle(visible(decision.names.join(", ")), 40)}` : "";
const decision = (last: SplitStatus) => `${last.decision === "split" ? "" : "not split: "}${last.reason}${named(last)}`;

function sentence(rows: ShardRow[]) {
  const leaderless = rows.filter((row) => row.leader === null);
  const byNode = new Map<NodeId, { name: string; load: number }>();
  for (const row of rows) {
    if (row.leader === null) continue;
    const node = byNode.get(row.leader) ?? { name: row.leader_name ?? row.leader, load: 0 };
    byNode.set(row.leader, { ...node, load: node.load + (load(row) ?? 0) });
  }
  const all = [...byNode.values()].reduce((total, node) => total + node.load, 0);
  const spread = [...byNode.values()]
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map((node) => `${visible(node.name)} ${all > 0 ? Math.round((100 * node.load) / all) : 0} %`)
    .join(", ");
  const led =
    leaderless.length === 0
      ? "all have a leader"
      : `${leaderless.map((row) => `${row.store} ${row.shard}`).join(", ")} without a leader`;
  const [hottest] = rows.filter((row) => (load(row) ?? 0) > 0).sort((a, b) => load(b)! - load(a)!);
  const most = hottest && (
    <>
      {" "}
      <a href={link("shards", { shard: nameOf(hottest) })}>{nameOf(hottest)}</a> has the highest load,{" "}
      {share(load(hottest))} of a core{hottest.last_decision && `; ${decision(hottest.last_decision)}`}.
    </>
  );
  return (
    <>
      {stores.map((store) => `${store} ${rows.filter((row) => row.store === store).length}`).join(" · ")}:{" "}
      {plural(rows.length, "shard")}, {led}. Load: {spread}.{most}
    </>
  );
}

function Slots({ store, rows }: { store: string; rows: ShardRow[] }) {
  if (rows.length < 2) return null;
  return (
    <div
      class="slots"
      role="img"
      aria-label={`Slots of the ${store} store: ${rows.map((row) => `shard ${row.shard} from ${row.first_slot} to ${row.last_slot}`).join(", ")}`}
    >
      {rows.map((row) => (
        <span
          key={row.shard}
          style={{ width: `${(100 * ((row.last_slot ?? 0) - (row.first_slot ?? 0) + 1)) / slots}%` }}
        >
          {store} {row.shard} {visible(row.leader_name ?? "")}
        </span>
      ))}
    </div>
  );
}
