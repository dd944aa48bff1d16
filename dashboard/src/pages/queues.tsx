// Who is behind?
import { useState } from "preact/hooks";
import { EmptyQueue } from "../parts/actions";
import { get, missingOf } from "../api/api";
import { Action } from "../parts/dialog";
import { bytes, count, duration, middle, plural, rate, unknown, visible } from "../words/format";
import { Empty, Head, Partial, Told, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { link, replaceParameters, route } from "../navigation/route";
import { Table } from "../parts/table";
import { Ago, Bar, ClientLink, Moment } from "../parts/text";
import type { QueueRow } from "../api/api.types";

const rankings = { messages: "most messages", bytes: "most bytes", age: "oldest message" } as const;

export function Queues() {
  const by =
    (Object.keys(rankings) as (keyof typeof rankings)[]).find((name) => name === route.value.parameters.by) ??
    "messages";
  const queues = usePolled((abort) => get("/queues", { by, limit: 100 }, {}, abort), 5000, [by]);
  const holders = usePolled((abort) => get("/backpressure", { limit: 20 }, {}, abort), 10_000, []);
  const [emptied, setEmptied] = useState<QueueRow | null>(null);
  const [done, setDone] = useState<string | null>(null);
  const rows = queues.value?.items ?? [];
  const full = rows.filter((row) => fill(row) >= 1).length;
  return (
    <>
      <Head title="Queues" polled={queues} request={`/queues?by=${by}&limit=100`}>
        {queues.value &&
          (rows.length === 0
            ? "No durable session has messages waiting."
            : `${rows.length === 100 ? "At least " : ""}${plural(rows.length, "durable session has", "durable sessions have")} messages waiting; ${full === 0 ? "no queue is full" : `${plural(full, "queue is full", "queues are full")}`}.`)}
      </Head>
      <Told>{done}</Told>
      <div class="section-head">
        <h2>By {rankings[by]}</h2>
        <span class="switch">
          {(Object.keys(rankings) as (keyof typeof rankings)[]).map((name) => (
            <button key={name} type="button" aria-pressed={by === name} onClick={() => replaceParameters({ by: name })}>
              {name}
            </button>
          ))}
        </span>
      </div>
      {queues.value && rows.length === 0 ? (
        <Empty>
          {missingOf(queues.value).length > 0
            ? "None on the nodes that answered."
            : "A durable session appears here when messages wait in its queue."}
        </Empty>
      ) : (
        <Table
          label="Queues"
          open
          rows={rows}
          keyOf={(row) => row.client_id}
          stale={isStale(queues)}
          columns={[
            { head: "Client", cell: (row) => <ClientLink id={row.client_id} tab="queue" /> },
            { head: "Messages", width: 9, figure: true, cell: (row) => count(row.messages) },
            { head: "Limit", width: 7, figure: true, cell: (row) => count(row.limit_messages) },
            {
              head: "Full",
              width: 15,
              cell: (row) => (
                <>
                  <Bar part={fill(row)} /> {Math.round(fill(row) * 100)} %
                </>
              ),
            },
            { head: "Bytes", width: 9, figure: true, cell: (row) => bytes(row.bytes) },
            { head: "Oldest", width: 12, figure: true, cell: (row) => <Ago at={row.oldest_at} /> },
            { head: "In /s", width: 6.2, figure: true, cell: (row) => rate(row.in_per_s) },
            { head: "Out /s", width: 6.2, figure: true, cell: (row) => rate(row.out_per_s) },
            { head: "Empty in", width: 9, figure: true, cell: emptyIn },
            {
              head: "Led by",
              width: 8,
              cell: (row) => <a href={link("nodes", { node: row.node })}>{visible(row.node_name)}</a>,
            },
            {
              head: "Actions",
              width: 16.5,
              figure: true,
              cell: (row) => (
                <Action quiet needs="operator" onClick={() => setEmptied(row)}>
                  Empty queue…
                </Action>
              ),
            },
          ]}
        />
      )}
      {emptied && (
        <EmptyQueue
          id={emptied.client_id}
          waiting={emptied.messages}
          close={() => setEmptied(null)}
          done={(what) => {
            setDone(`${middle(visible(emptied.client_id), 40)}: ${what}`);
            queues.again();
          }}
        />
      )}
      <h2 class="section-title">Publishers that were held back</h2>
      <Partial missing={missingOf(holders.value)} again={holders.again} />
      {holders.value &&
        (holders.value.items.length === 0 ? (
          <Empty>No publisher has had to wait because of a full queue.</Empty>
        ) : (
          <Table
            label="Publishers that were held back"
            open
            rows={holders.value.items}
            keyOf={(row) => `${row.node} ${row.publisher} ${row.subscriber}`}
            columns={[
              { head: "Publisher", cell: (row) => <ClientLink id={row.publisher} /> },
              {
                head: "Full queue of",
                width: 36,
                cell: (row) => (row.subscriber === null ? "a durable session" : <ClientLink id={row.subscriber} />),
              },
              {
                head: "Node",
                width: 8,
                cell: (row) => <a href={link("nodes", { node: row.node })}>{visible(row.node_name)}</a>,
              },
              { head: "Times", width: 10, figure: true, cell: (row) => count(row.times) },
              { head: "Last", width: 16, cell: (row) => <Moment at={row.last} /> },
            ]}
          />
        ))}
    </>
  );
}

const fill = (row: QueueRow) =>
  Math.max(
    row.limit_messages > 0 ? row.messages / row.limit_messages : 0,
    row.limit_bytes > 0 ? row.bytes / row.limit_bytes : 0,
  );

function emptyIn({ messages, in_per_s, out_per_s }: QueueRow) {
  if (in_per_s === null || out_per_s === null) return unknown;
  // A difference this small is chance: the client keeps up.
  if (Math.abs(out_per_s - in_per_s) <= 0.05 * in_per_s) return "steady";
  return out_per_s > in_per_s ? duration(messages / (out_per_s - in_per_s)) : "never";
}
