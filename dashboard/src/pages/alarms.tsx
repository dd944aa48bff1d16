// What should a person see to?
import { get, missingOf } from "../api";
import { plural, visible, words } from "../format";
import { EventList } from "../eventlist";
import { Empty, Head, isStale } from "../notices";
import { usePolled } from "../poll";
import { link } from "../route";
import { Table } from "../table";
import { Moment, State } from "../text";

export function Alarms() {
  const alarms = usePolled((abort) => get("/alarms", {}, {}, abort), 5000, []);
  const rows = alarms.value?.items ?? [];
  return (
    <>
      <Head title="Alarms" polled={alarms} request="/alarms">{alarms.value && (rows.length === 0 ? (missingOf(alarms.value).length > 0 ? "No alarm on the nodes that answered." : "No alarm: nothing wants attention.") : `${plural(rows.length, "alarm")} on ${plural(new Set(rows.map((row) => row.node)).size, "node")}.`)}</Head>
      {rows.length > 0 && <Table label="Alarms" rows={rows} keyOf={(row) => `${row.name} ${row.node} ${row.detail}`} stale={isStale(alarms)} columns={[
        { head: "Alarm", width: 18, cell: (row) => <State is="down" say={words(row.name)} /> },
        { head: "Node", width: 12, cell: (row) => <a href={link("nodes", { node: row.node })}>{visible(row.node_name)}</a> },
        { head: "What", cell: (row) => <span class="wrap">{visible(row.detail)}</span> },
        { head: "Since", width: 16, cell: (row) => <Moment at={row.since} /> },
      ]} />}
      {alarms.value && rows.length === 0 && <Empty>Alarms are raised for a node that is down, a shard without a leader, scarce memory, a full disk, an open cluster, and certificates that end within two weeks.</Empty>}
      <h2 class="section-title">As they come and go</h2>
      <EventList query={{ type: "alarm.raised,alarm.cleared,node.state,shard.leader" }} />
    </>
  );
}
