// The subscriptions of a client, and changes of them.
import { type Problem, fitsPath, get, post, problemOf } from "../../api/api";
import type { Client, SubscriptionRow } from "../../api/api.types";
import { Action } from "../../parts/dialog";
import { Pager, usePages } from "../../parts/list";
import { Empty, Failed, Notices } from "../../parts/notices";
import { Table } from "../../parts/table";
import { Foreign } from "../../parts/text";
import { useState } from "preact/hooks";

export function Subscriptions({ id, client }: { id: string; client: Client }) {
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
