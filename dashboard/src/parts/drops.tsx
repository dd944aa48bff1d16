// Rows of dropped messages, wherever they are listed.
import type { DropRow } from "../api/api.types";
import type { Line } from "./chart";
import { bytes, visible } from "../words/format";
import { byReason, sum, type Series } from "../api/history";
import { Table, type Column } from "./table";
import { ClientLink, Moment, TopicLink } from "./text";
import { meaning, reasonName } from "../words/reasons";

export function DropTable({ rows, stale, of }: { rows: DropRow[]; stale?: boolean; of?: "client" }) {
  const columns: (Column<DropRow> | false)[] = [
    { head: "Time", width: 12, cell: (row) => <Moment at={row.at} /> },
    { head: "Reason", width: 22, cell: (row) => <span title={meaning(row.reason)}>{reasonName(row.reason)}</span> },
    of !== "client" && { head: "Client", width: 26, cell: (row) => <ClientLink id={row.client_id} most={24} /> },
    { head: "Role", width: 11, cell: (row) => row.role },
    {
      head: "Topic",
      cell: (row) => (
        <TopicLink
          topic={row.topic}
          most={40}
          more={{ qos: String(row.qos), [row.role === "publisher" ? "from" : "why"]: row.client_id }}
        />
      ),
    },
    { head: "QoS", width: 6, figure: true, cell: (row) => row.qos },
    { head: "Size", width: 10, figure: true, cell: (row) => bytes(row.bytes) },
    { head: "Node", width: 11, cell: (row) => visible(row.node_name) },
  ];
  return (
    <Table
      label="Dropped messages"
      open
      rows={rows}
      stale={stale}
      keyOf={(row) => `${row.node}${row.at}${row.client_id.slice(0, 64)}${row.topic.slice(0, 64)}${rows.indexOf(row)}`}
      columns={columns.filter((column) => column !== false)}
    />
  );
}

const colors = [5, 1, 2, 8, 3, 7];

/** What is dropped in a second, a line for each reason, most first; while nothing is, one line for all. */
export function dropLines(series: Series | null): Line[] {
  const reasons = series ? byReason(series) : [];
  if (reasons.length > 0)
    return reasons.map(({ reason, all, lacking }, n) => ({
      name: reason === null ? "others" : reasonName(reason),
      color: colors[n]!,
      values: all,
      lacking,
    }));
  const { all, lacking } = series ? sum(series, "dropped_per_s") : { all: [], lacking: [] };
  return [{ name: "dropped", color: colors[0]!, values: all, lacking }];
}
