// Who was not let in, and why? For operators: the cause tells which users there are.
import type { RefusedLoginsRow } from "../api/api.types";
import { get } from "../api/api";
import { count, middle, visible, words } from "../words/format";
import { Empty, Failed, isStale } from "./notices";
import { usePolled } from "../api/poll";
import { may } from "../api/session";
import { Table } from "./table";
import { ClientLink, Foreign, Moment } from "./text";

const keyOf = (row: RefusedLoginsRow) => JSON.stringify([row.node, row.address, row.user, row.cause]);

export function RefusedLogins() {
  return (
    <>
      <h2 class="section-title">Refused logins</h2>
      {may("operator") ? <List /> : <Empty>Operators see here who was refused and why.</Empty>}
    </>
  );
}

function List() {
  const refused = usePolled((abort) => get("/refused-logins", { limit: 100 }, {}, abort), 10_000, []);
  const rows = refused.value?.items ?? [];
  if (refused.problem && !refused.value) return <Failed problem={refused.problem} again={refused.again} />;
  if (!refused.value) return null;
  if (rows.length === 0) return <Empty>The nodes have refused nobody since they started.</Empty>;
  return (
    <Table
      label="Refused logins"
      rows={rows}
      keyOf={keyOf}
      stale={isStale(refused)}
      columns={[
        { head: "Address", width: 18, cell: (row) => <Foreign text={row.address ?? "Unix socket"} /> },
        { head: "User", width: 16, cell: (row) => (row.user == null ? "none" : <Foreign text={row.user} />) },
        {
          head: "Client",
          width: 18,
          cell: (row) => (row.client_id ? <ClientLink id={row.client_id} /> : row.listener == null ? "HTTP API" : "–"),
        },
        {
          head: "Cause",
          cell: (row) => (
            <span class="wrap" title={words(row.cause)}>
              {row.explanation}
              {row.detail != null && (
                <>
                  {" "}
                  <span class="quiet">{middle(visible(row.detail), 80)}</span>
                </>
              )}
            </span>
          ),
        },
        { head: "Node", width: 10, cell: (row) => visible(row.node_name) },
        { head: "Times", width: 9, figure: true, cell: (row) => count(row.count) },
        { head: "Last", width: 14, cell: (row) => <Moment at={row.last} /> },
      ]}
    />
  );
}
