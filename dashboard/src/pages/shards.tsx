// Is load spread, and what does the balancer do?
import type { NodeId, ShardRow, SplitStatus } from "../api.types";
import { get, missingOf } from "../api";
import { bytes, count, duration, middle, plural, share, unknown, visible, words } from "../format";
import { Empty, Head, isStale } from "../notices";
import { usePolled } from "../poll";
import { link } from "../route";
import { Table } from "../table";
import { State } from "../text";

const stores = ["inbox", "session", "retain"] as const;
const slots = 65_536;

/** The share of a core that its leader needs for it. */
const load = (shard: ShardRow) => (shard.load ? (shard.load.propose_us + shard.load.apply_us + shard.load.read_us) / 1e6 : null);

export function Shards() {
  const shards = usePolled((abort) => get("/shards", {}, {}, abort), 5000, []);
  const rows = [...(shards.value?.items ?? [])].sort((a, b) => stores.indexOf(a.store) - stores.indexOf(b.store) || (a.first_slot ?? 0) - (b.first_slot ?? 0));
  return (
    <>
      <Head title="Shards" polled={shards} request="/shards" command="heraldmq shards">{shards.value && sentence(rows)}</Head>
      {shards.value && rows.length === 0 && <Empty>{missingOf(shards.value).length > 0 ? "None on the nodes that answered." : "This broker has no stores."}</Empty>}
      {stores.map((store) => <Slots key={store} store={store} rows={rows.filter((row) => row.store === store && row.first_slot !== null)} />)}
      <Table label="Shards" rows={rows} keyOf={(row) => `${row.store} ${row.shard}`} stale={isStale(shards)} columns={[
        { head: "Shard", width: 10, cell: (row) => `${row.store} ${row.shard}` },
        { head: "Slots", width: 12, cell: (row) => (row.first_slot === null ? unknown : `${row.first_slot}–${row.last_slot}`) },
        { head: "Leader", width: 8, cell: (row) => (row.leader === null ? <State is="down" say="none" /> : <a href={link("nodes", { node: row.leader })}>{visible(row.leader_name ?? row.leader)}</a>) },
        { head: "Voters", width: 17, cell: (row) => [...row.voters].sort((a, b) => (a.node_name < b.node_name ? -1 : 1)).map((voter, n) => <span key={voter.node} class={voter.reach === "up" ? "" : "state bad"}>{n > 0 && " "}{visible(voter.node_name)}{voter.reach !== "up" && ` ${voter.reach ?? unknown}`}</span>) },
        { head: "Load", width: 6, figure: true, cell: (row) => share(load(row)) },
        { head: "Req /s", width: 7, figure: true, cell: (row) => count(row.load?.requests) },
        { head: "Wait", width: 9, figure: true, cell: (row) => (row.load ? `${(row.load.wait_us / 1000).toFixed(2)} ms` : unknown) },
        { head: "Sessions", width: 9, figure: true, cell: (row) => count(row.holds?.sessions) },
        { head: "Messages", width: 10, figure: true, cell: (row) => count(row.holds?.messages) },
        { head: "Bytes", width: 9, figure: true, cell: (row) => bytes(row.holds?.bytes) },
        { head: "Last decision", cell: (row) => row.last_decision
          ? <span title={row.last_decision.reason}>{words(row.last_decision.decision)} for {duration(row.last_decision.seconds)}{named(row.last_decision)}</span> : unknown },
      ]} />
    </>
  );
}

const named = (decision: SplitStatus) => (decision.names?.length > 0 ? `: ${middle(visible(decision.names.join(", ")), 40)}` : "");
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
  const spread = [...byNode.values()].sort((a, b) => (a.name < b.name ? -1 : 1)).map((node) => `${visible(node.name)} ${all > 0 ? Math.round((100 * node.load) / all) : 0} %`).join(", ");
  const led = leaderless.length === 0 ? "all have leaders" : `${leaderless.map((row) => `${row.store} ${row.shard}`).join(", ")} without a leader`;
  const [hottest] = rows.filter((row) => (load(row) ?? 0) > 0).sort((a, b) => load(b)! - load(a)!);
  const most = hottest ? ` ${hottest.store} ${hottest.shard} has most of it, ${share(load(hottest))} of a core${hottest.last_decision ? `; ${decision(hottest.last_decision)}` : ""}.` : "";
  return `${stores.map((store) => `${store} ${rows.filter((row) => row.store === store).length}`).join(" · ")}: ${plural(rows.length, "shard")}, ${led}. Load: ${spread}.${most}`;
}

function Slots({ store, rows }: { store: string; rows: ShardRow[] }) {
  if (rows.length < 2) return null;
  return (
    <div class="slots" role="img" aria-label={`Slots of the ${store} store: ${rows.map((row) => `shard ${row.shard} from ${row.first_slot} to ${row.last_slot}`).join(", ")}`}>
      {rows.map((row) => <span key={row.shard} style={{ width: `${(100 * ((row.last_slot ?? 0) - (row.first_slot ?? 0) + 1)) / slots}%` }}>{store} {row.shard} {visible(row.leader_name ?? "")}</span>)}
    </div>
  );
}
