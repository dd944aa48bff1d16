// Is it open?
import type { ListenerRow } from "../api/api.types";
import { get } from "../api/api";
import { secondsSince } from "../api/clock";
import { count, duration, plural, visible } from "../words/format";
import { Head, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { Table } from "../parts/table";
import { Foreign, State } from "../parts/text";

export function Listeners() {
  const listeners = usePolled((abort) => get("/listeners", {}, {}, abort), 10_000, []);
  const rows = [...(listeners.value?.items ?? [])].sort((a, b) =>
    a.node_name < b.node_name ? -1 : a.node_name > b.node_name ? 1 : 0,
  );
  const ending = rows.filter((row) => (endsIn(row) ?? Infinity) < 14 * 86_400).length;
  return (
    <>
      <Head title="Listeners" polled={listeners} request="/listeners">
        {listeners.value &&
          `${plural(rows.length, "listener")} on ${plural(new Set(rows.map((row) => row.node)).size, "node")}${ending > 0 ? `; ${plural(ending, "certificate expires", "certificates expire")} within two weeks` : ""}.`}
      </Head>
      <Table
        label="Listeners"
        rows={rows}
        keyOf={(row) => `${row.node} ${row.kind} ${row.address}`}
        stale={isStale(listeners)}
        columns={[
          { head: "Address", width: 24, cell: (row) => row.address },
          { head: "Kind", width: 9, cell: (row) => row.kind },
          { head: "Node", width: 12, cell: (row) => visible(row.node_name) },
          { head: "Connections", width: 13, figure: true, cell: (row) => count(row.connections) },
          { head: "Accepted", width: 12, figure: true, cell: (row) => count(row.accepted) },
          { head: "Refused", width: 10, figure: true, cell: (row) => count(row.refused) },
          { head: "Failed handshakes", width: 18, figure: true, cell: (row) => count(row.failed_handshakes) },
          {
            head: "Certificate",
            cell: (row) =>
              row.certificate ? (
                <>
                  <Foreign text={row.certificate.subject} most={30} />{" "}
                  <State
                    is={(endsIn(row) ?? 0) < 14 * 86_400 ? "silent" : "ok"}
                    say={`expires in ${duration(endsIn(row))}`}
                  />
                </>
              ) : (
                <span class="soft">none</span>
              ),
          },
        ]}
      />
    </>
  );
}

function endsIn(row: ListenerRow): number | null {
  const since = secondsSince(row.certificate?.not_after);
  return since === null ? null : -since;
}
