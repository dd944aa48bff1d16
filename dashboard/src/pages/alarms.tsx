// What should a person see to?
import type { Alarm } from "../api/api.types";
import { get, missingOf } from "../api/api";
import { commandOf } from "../words/command";
import { plural, visible, words } from "../words/format";
import { EventList } from "../parts/eventlist";
import { Empty, Failed, Head, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { link } from "../navigation/route";
import { Table } from "../parts/table";
import { Moment, State } from "../parts/text";

const keyOf = (row: Alarm) => `${row.name} ${row.node} ${row.subject}`;

export function Alarms() {
  const alarms = usePolled((abort) => get("/alarms", {}, {}, abort), 5000, []);
  const ended = usePolled((abort) => get("/alarms", { state: "ended" }, {}, abort), 10_000, []);
  const rows = alarms.value?.items ?? [];
  return (
    <>
      <Head title="Alarms" polled={alarms} request="/alarms" command={commandOf("alarms")}>
        {alarms.value &&
          (rows.length === 0
            ? missingOf(alarms.value).length > 0
              ? "No alarm on the nodes that answered."
              : "No alarms."
            : `${plural(rows.length, "alarm")} on ${plural(new Set(rows.map((row) => row.node)).size, "node")}.`)}
      </Head>
      {rows.length > 0 && (
        <Table
          label="Alarms"
          rows={rows}
          keyOf={keyOf}
          stale={isStale(alarms)}
          columns={[
            { head: "Alarm", width: 18, cell: (row) => <State is="down" say={words(row.name)} /> },
            {
              head: "Node",
              width: 12,
              cell: (row) => <a href={link("nodes", { node: row.node })}>{visible(row.node_name)}</a>,
            },
            { head: "What", cell: (row) => <span class="wrap">{visible(row.detail)}</span> },
            { head: "Since", width: 16, cell: (row) => <Moment at={row.since} /> },
          ]}
        />
      )}
      {alarms.value && rows.length === 0 && (
        <Empty>
          Alarms are raised for a node that is down, a shard without a leader, scarce memory, a full disk, messages that
          are dropped, queues that are full, publishers that wait, an open cluster, outlets that fail, and certificates
          that end within two weeks.
        </Empty>
      )}
      <h2 class="section-title">Ended</h2>
      {ended.problem && !ended.value ? (
        <Failed problem={ended.problem} again={ended.again} />
      ) : ended.value && ended.value.items.length === 0 ? (
        <Empty>The nodes remember no alarm that has ended.</Empty>
      ) : (
        <Table
          label="Ended alarms"
          rows={ended.value?.items ?? []}
          keyOf={(row) => `${keyOf(row)} ${row.since} ${row.until}`}
          stale={isStale(ended)}
          columns={[
            { head: "Alarm", width: 18, cell: (row) => words(row.name) },
            {
              head: "Node",
              width: 12,
              cell: (row) => <a href={link("nodes", { node: row.node })}>{visible(row.node_name)}</a>,
            },
            { head: "What", cell: (row) => <span class="wrap">{visible(row.detail)}</span> },
            { head: "Since", width: 16, cell: (row) => <Moment at={row.since} /> },
            { head: "Until", width: 16, cell: (row) => <Moment at={row.until} /> },
          ]}
        />
      )}
      <h2 class="section-title">Live</h2>
      <EventList query={{ type: "alarm.raised,alarm.cleared,node.state,shard.leader" }} />
    </>
  );
}
