// Who is busy, and who is slow?
import type { BusyClient, BusyTopic } from "../api/api.types";
import { get, missingOf } from "../api/api";
import { bytes, milliseconds, rate, visible } from "../words/format";
import { Empty, Head, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { link, replaceParameters, route } from "../navigation/route";
import { Table } from "../parts/table";
import { ClientLink, TopicLink } from "../parts/text";

const measures = { messages: "messages", bytes: "bytes" } as const;
const most = 10;

export function Top() {
  const by = route.value.parameters.by === "bytes" ? "bytes" : "messages";
  const query = { by, limit: most } as const;
  const publishers = usePolled((abort) => get("/top/publishers", query, {}, abort), 5000, [by]);
  const subscribers = usePolled((abort) => get("/top/subscribers", query, {}, abort), 5000, [by]);
  const slowest = usePolled((abort) => get("/top/subscribers", { by: "delay", limit: most }, {}, abort), 5000, []);
  const topics = usePolled((abort) => get("/top/topics", query, {}, abort), 5000, [by]);
  const amount = (row: { messages_per_s: number; bytes_per_s: number }) =>
    by === "bytes" ? `${bytes(row.bytes_per_s)}/s` : `${rate(row.messages_per_s)}/s`;
  const [publisher, subscriber, slow] = [publishers, subscribers, slowest].map((polled) => polled.value?.items[0]);
  const parts = [
    publisher && (
      <>
        <ClientLink id={publisher.client_id} most={24} /> publishes the most, {amount(publisher)}
      </>
    ),
    subscriber && (
      <>
        <ClientLink id={subscriber.client_id} most={24} /> receives the most, {amount(subscriber)}
      </>
    ),
    slow && (
      <>
        the slowest delivery took {milliseconds(slow.delay_max_ms)}, to{" "}
        <ClientLink id={slow.client_id} most={24} tab="queue" />
      </>
    ),
  ].filter(Boolean);
  const rates = <Row extends BusyClient | BusyTopic>() => [
    { head: "Messages /s", width: 13, figure: true, cell: (row: Row) => rate(row.messages_per_s) },
    { head: "Bytes /s", width: 12, figure: true, cell: (row: Row) => bytes(row.bytes_per_s) },
  ];
  const node = {
    head: "Node",
    width: 12,
    cell: (row: BusyClient) => <a href={link("nodes", { node: row.node })}>{visible(row.node_name)}</a>,
  };
  const clients = (label: string, polled: typeof publishers, isSlow = false) =>
    polled.value &&
    (polled.value.items.length === 0 ? (
      <Empty>
        {missingOf(polled.value).length > 0
          ? "None on the nodes that answered."
          : isSlow
            ? "No delivery was measured in the last five seconds."
            : "No client in the last five seconds."}
      </Empty>
    ) : (
      <Table
        label={label}
        open
        rows={polled.value.items}
        keyOf={(row) => `${row.client_id} ${row.node}`}
        stale={isStale(polled)}
        columns={[
          {
            head: "Client",
            cell: (row) => <ClientLink id={row.client_id} most={28} tab={isSlow ? "queue" : undefined} />,
          },
          ...(isSlow
            ? [
                { head: "Longest", width: 12, figure: true, cell: (row: BusyClient) => milliseconds(row.delay_max_ms) },
                { head: "Mean", width: 12, figure: true, cell: (row: BusyClient) => milliseconds(row.delay_mean_ms) },
              ]
            : rates<BusyClient>()),
          node,
        ]}
      />
    ));
  return (
    <>
      <Head title="Busiest" polled={publishers} request={`/top/publishers?by=${by}&limit=${most}`}>
        {publishers.value &&
          (parts.length > 0 ? (
            <>{parts.flatMap((part, n) => (n === 0 ? [part] : ["; ", part]))}, in the last five seconds.</>
          ) : (
            "No client has published in the last five seconds."
          ))}
      </Head>
      <div class="section-head">
        <h2>By {by}</h2>
        <span class="switch">
          {(Object.keys(measures) as (keyof typeof measures)[]).map((name) => (
            <button key={name} type="button" aria-pressed={by === name} onClick={() => replaceParameters({ by: name })}>
              {name}
            </button>
          ))}
        </span>
      </div>
      <div class="pairs">
        <section>
          <h2 class="section-title">Publishers</h2>
          {clients("Publishers", publishers)}
        </section>
        <section>
          <h2 class="section-title">Subscribers</h2>
          {clients("Subscribers", subscribers)}
        </section>
        <section>
          <h2 class="section-title">Topics</h2>
          {topics.value &&
            (topics.value.items.length === 0 ? (
              <Empty>Nothing was published in the last five seconds.</Empty>
            ) : (
              <Table
                label="Topics"
                open
                rows={topics.value.items}
                keyOf={(row) => row.topic}
                stale={isStale(topics)}
                columns={[
                  { head: "Topic", cell: (row) => <TopicLink topic={row.topic} most={34} /> },
                  ...rates<BusyTopic>(),
                ]}
              />
            ))}
        </section>
        <section>
          <h2 class="section-title">Slowest deliveries</h2>
          {clients("Slowest deliveries", slowest, true)}
        </section>
      </div>
    </>
  );
}
