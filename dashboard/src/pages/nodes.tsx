// Can I take this one down?
import { useEffect, useState } from "preact/hooks";
import type { ClusterStatus, NodeChange, NodeRow, ShardRow } from "../api/api.types";
import { ask, get, missingOf, post, problemOf, remove, type Problem } from "../api/api";
import { startedAt } from "../api/clock";
import { commandOf } from "../words/command";
import { damagedOf, elsewhere, knownFor, recovery } from "../words/damaged";
import { Action, Confirm } from "../parts/dialog";
import { bytes, count, duration, plural, share, unknown, visible } from "../words/format";
import { Failed, Head, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { link, route } from "../navigation/route";
import { may } from "../api/session";
import { Table } from "../parts/table";
import { State } from "../parts/text";
import { useHistory } from "../api/usehistory";

export function Nodes() {
  const [quick, setQuick] = useState(false);
  const nodes = usePolled((abort) => get("/nodes", {}, {}, abort), quick ? 2000 : 5000, []);
  const shards = usePolled((abort) => get("/shards", {}, {}, abort), 10_000, []);
  const cluster = usePolled((abort) => get("/cluster", {}, {}, abort), 10_000, []);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [change, setChange] = useState<{ node: NodeRow; what: "drain" | "evict" } | null>(null);
  const rows = [...(nodes.value?.items ?? [])].sort((a, b) => (a.node_name < b.node_name ? -1 : 1));
  const { series } = useHistory();
  const draining = rows.some((row) => row.state === "draining");
  useEffect(() => setQuick(draining), [draining]);
  const chosen = rows.find((row) => row.node === route.value.parameters.node);
  async function endDrain(node: string) {
    try {
      await remove("/nodes/{node}/drain", {}, { node });
      setProblem(null);
      nodes.again();
    } catch (error) {
      setProblem(problemOf(error));
    }
  }
  return (
    <>
      <Head title="Nodes" polled={nodes} request="/nodes" command={commandOf("nodes")}>
        {nodes.value && shards.value && sentence(rows, shards.value.items)}
      </Head>
      {problem && <Failed problem={problem} />}
      <Table
        label="Nodes"
        rows={rows}
        keyOf={(row) => row.node}
        stale={isStale(nodes)}
        tone={(row) => (row.node === chosen?.node ? "chosen" : row.health ? "" : "stale")}
        columns={[
          {
            head: "Node",
            width: 12,
            cell: (row) => <a href={link("nodes", { node: row.node })}>{visible(row.node_name)}</a>,
          },
          {
            head: "State",
            cell: (row) => (
              <>
                <State is={row.reach === "up" ? (row.health ? row.state : "silent") : row.reach} />
                {row.health?.drain && (
                  <span class="soft">
                    {" "}
                    {plural(row.health.drain.clients_left, "client")} and{" "}
                    {plural(row.health.drain.shards_left, "led shard")} left
                  </span>
                )}
              </>
            ),
          },
          { head: "Connections", width: 12, figure: true, cell: (row) => count(row.connections) },
          { head: "Sessions", width: 9, figure: true, cell: (row) => count(row.health?.sessions) },
          { head: "Leads", width: 7, figure: true, cell: (row) => count(row.health?.shards_led) },
          {
            head: "CPU",
            width: 7,
            figure: true,
            cell: (row) => share(series?.nodes.find((one) => one.node === row.node)?.values.cpu_cores?.at(-1)),
          },
          { head: "Memory", width: 10, figure: true, cell: (row) => bytes(row.health?.memory_bytes) },
          { head: "Disk free", width: 10, figure: true, cell: (row) => bytes(row.health?.disk_free_bytes) },
          { head: "Started", width: 13, figure: true, cell: (row) => startedAt(row.health?.uptime_s) },
          { head: "Version", width: 9, cell: (row) => row.version },
          {
            head: "Actions",
            width: 25,
            figure: true,
            cell: (row) => (
              <span class="in-place end">
                {row.state === "draining" ? (
                  <Action needs="operator" onClick={() => void endDrain(row.node)}>
                    End drain
                  </Action>
                ) : (
                  <Action
                    needs="operator"
                    disabled={row.state !== "up" || row.reach === "down"}
                    onClick={() => setChange({ node: row, what: "drain" })}
                  >
                    Drain…
                  </Action>
                )}
                <Action needs="administrator" onClick={() => setChange({ node: row, what: "evict" })}>
                  Evict…
                </Action>
              </span>
            ),
          },
        ]}
      />
      <Damaged status={cluster.value} stale={isStale(cluster)} />
      <details class="panel">
        <summary>Add a node</summary>
        <p>
          On another machine, start a broker with the same <code>clusterConfig</code> and secret, and with a node of
          this cluster as its seed. It joins the cluster, which then moves shards to it:
        </p>
        <p>
          <code>{`heraldmq serve --set clusterConfig.seedEndpoints=${rows[0]?.address ?? "HOST:PORT"}`}</code>
        </p>
      </details>
      {chosen && (
        <Checks row={chosen} shards={shards.value?.items ?? []} partial={missingOf(shards.value).length > 0} />
      )}
      {change && (
        <Change {...change} shards={shards.value?.items ?? []} close={() => setChange(null)} done={nodes.again} />
      )}
    </>
  );
}

const upVoters = (shard: ShardRow) => shard.voters.filter((voter) => voter.reach === "up").length;
const majority = (shard: ShardRow) => Math.floor(shard.voters.length / 2) + 1;
const nameOf = (shard: ShardRow) => `${shard.store} ${shard.shard}`;

/** Shards that lose their majority if one more of their voters goes. */
const atRisk = (shards: ShardRow[]) =>
  shards.filter((shard) => shard.voters.length > 1 && upVoters(shard) - 1 < majority(shard));

function sentence(rows: NodeRow[], shards: ShardRow[]) {
  const away = rows.filter((row) => row.reach !== "up");
  const risk = atRisk(shards);
  const draining = rows.filter((row) => row.state === "draining");
  const state =
    away.length > 0
      ? `${away.map((row) => visible(row.node_name)).join(", ")} ${away.length === 1 ? "does" : "do"} not answer`
      : rows.length === 1
        ? "The only node is up"
        : `All ${plural(rows.length, "node is", "nodes are")} up`;
  const drains =
    draining.length > 0
      ? `; ${draining.map((row) => visible(row.node_name)).join(", ")} ${draining.length === 1 ? "is" : "are"} draining`
      : "";
  if (rows.length === 1) return `${state}. If it fails, no other node takes over.`;
  return risk.length > 0 ? (
    <>
      {state}
      {drains}; <strong>no further node may fail</strong>:{" "}
      {risk
        .slice(0, 3)
        .map((shard) => `${nameOf(shard)} has ${upVoters(shard)} of ${plural(shard.voters.length, "voter")}`)
        .join(", ")}
      .
    </>
  ) : (
    <>
      {state}
      {drains}; any one of them can fail without an outage.
    </>
  );
}

function Checks({ row, shards, partial }: { row: NodeRow; shards: ShardRow[]; partial: boolean }) {
  const health = row.health;
  const votes = shards.filter((shard) => shard.voters.some((voter) => voter.node === row.node));
  const leaderless = votes.filter((shard) => shard.leader === null);
  const offset = row.clock_offset_ms;
  const checks: [good: boolean | null, text: string][] = [
    [
      health ? health.ready : null,
      health ? (health.ready ? "ready for clients" : "not ready for clients") : "does not answer",
    ],
    [health ? (health.disk_free_bytes ?? 0) > 5e9 : null, `disk ${bytes(health?.disk_free_bytes)} free`],
    [
      offset === null ? null : Math.abs(offset) < 2000,
      `clock ${offset === null ? unknown : `${offset < 0 ? "−" : "+"}${Math.abs(offset)} ms`}`,
    ],
    [
      partial ? null : leaderless.length === 0,
      leaderless.length === 0
        ? plural(votes.length, "shard, which has a leader", "shards, which all have leaders")
        : `${leaderless.map(nameOf).join(", ")} without a leader`,
    ],
    [
      health ? health.alarms.length === 0 : null,
      health?.alarms.length ? health.alarms.map((alarm) => visible(alarm.detail)).join("; ") : "no alarm",
    ],
    [health ? true : null, `${plural(health?.cores, "core")}, ${duration(health?.cpu_s)} of CPU time used`],
  ];
  return (
    <>
      <h2 class="section-title">
        Health of {visible(row.node_name)}{" "}
        <span class="soft foreign">
          {row.node}
          {row.address !== null && ` at ${row.address}`}
        </span>
      </h2>
      {may("administrator") && (
        <p class="in-place">
          <a href={link("profile", { id: row.node })}>Profile</a>{" "}
          <span class="soft">what its threads do, and what takes its memory and CPU time</span>
        </p>
      )}
      <ul class="checks">
        {checks.map(([good, text]) => (
          <li key={text}>
            <State is={good === null ? "away" : good ? "delivered" : "silent"} say={text} />
          </li>
        ))}
      </ul>
    </>
  );
}

/** Damaged replicas of the node that answers, and other nodes that have some. Nothing if there are none. */
function Damaged({ status, stale }: { status: ClusterStatus | null | undefined; stale: boolean }) {
  const rows = damagedOf(status);
  const others = elsewhere(status);
  if (rows.length + others.length === 0) return null;
  return (
    <>
      <h2 class="section-title">Damaged replicas</h2>
      {rows.length > 0 && (
        <Table
          label="Damaged replicas"
          rows={rows}
          keyOf={(row) => `${row.store} ${row.shard}`}
          stale={stale}
          columns={[
            { head: "Shard", width: 16, cell: (row) => `${row.store} ${row.shard}` },
            { head: "Known for", width: 12, figure: true, cell: knownFor },
            { head: "Recovers", width: 44, cell: recovery },
            { head: "What to do", width: 40, cell: (row) => (row.action ? visible(row.action) : "nothing") },
            { head: "Damage", cell: (row) => visible(row.damage) },
          ]}
        />
      )}
      {others.length > 0 && (
        <ul class="checks">
          {others.map((text) => (
            <li key={text}>
              <State is="degraded" say={text} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

/** A dialog that says what the change would cost before it can be confirmed. */
function Change({
  node,
  what,
  shards,
  close,
  done,
}: {
  node: NodeRow;
  what: "drain" | "evict";
  shards: ShardRow[];
  close(): void;
  done(): void;
}) {
  const [cost, setCost] = useState<NodeChange | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [force, setForce] = useState(false);
  const path = `/nodes/${node.node}/${what}`;
  const body = (dry: boolean) => (what === "evict" ? { dry_run: dry, force } : { dry_run: dry });
  useEffect(() => {
    ask<NodeChange>("POST", path, body(true)).then(
      (answer) => {
        setCost(answer);
        setProblem(null);
      },
      (error) => {
        setCost(null);
        setProblem(problemOf(error));
      },
    );
  }, [force]);
  const name = visible(node.node_name);
  const votes = shards.filter((shard) => shard.voters.some((voter) => voter.node === node.node));
  const loses = votes.filter((shard) => {
    const left = shard.voters.filter((voter) => voter.node !== node.node);
    return left.filter((voter) => voter.reach === "up").length < Math.floor(shard.voters.length / 2) + 1;
  });
  async function act() {
    if (what === "drain") await post("/nodes/{node}/drain", { dry_run: false }, { node: node.node });
    else await post("/nodes/{node}/evict", { dry_run: false, force }, { node: node.node });
    done();
  }
  const deed = what === "drain" ? `Drain ${name}` : `Evict ${name}`;
  return (
    <Confirm
      title={`${deed}?`}
      deed={deed}
      danger={what === "evict"}
      typed={what === "evict" ? node.node_name : null}
      disabled={!cost?.possible}
      act={act}
      close={close}
    >
      <p>
        {what === "drain"
          ? "Its clients are disconnected gradually and reconnect to other nodes, and other nodes take over the shards that it leads. It stays a member; you can end the drain at any time."
          : "The node is removed from the cluster for good, even if it does not answer. It can join again only with an empty data folder."}
      </p>
      {cost && (
        <dl>
          <div class="fact">
            <dt>Connections</dt>
            <dd>
              {plural(cost.clients ?? 0, "client")}{" "}
              {what === "drain" ? "asked to reconnect to other nodes" : "disconnected; they reconnect to other nodes"}
            </dd>
          </div>
          <div class="fact">
            <dt>Shards led</dt>
            <dd>{plural(cost.shards_led, "shard gets another leader", "shards get other leaders")}</dd>
          </div>
          <div class="fact">
            <dt>Voters</dt>
            <dd>
              {what === "drain"
                ? plural(cost.voters, "vote stays", "votes stay")
                : `${plural(cost.voters, "shard loses a voter", "shards lose a voter")}`}
            </dd>
          </div>
          {what === "evict" && (
            <div class="fact">
              <dt>Majorities</dt>
              <dd>
                {loses.length === 0 ? (
                  "all shards keep theirs"
                ) : (
                  <State is="down" say={`${loses.map(nameOf).join(", ")} would have none`} />
                )}
              </dd>
            </div>
          )}
        </dl>
      )}
      {cost?.detail && <p class={cost.possible ? "" : "notice warn"}>{visible(cost.detail)}</p>}
      {problem && <Failed problem={problem} />}
      {what === "evict" && (problem !== null || (cost && !cost.possible) || force) && (
        <label class="check">
          <input type="checkbox" checked={force} onChange={(event) => setForce(event.currentTarget.checked)} /> force:
          evict the node even if shards lose their majority
        </label>
      )}
    </Confirm>
  );
}
