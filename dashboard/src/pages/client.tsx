// What is with this client?
import { fitsPath, get, post } from "../api/api";
import type { Client } from "../api/api.types";
import { clusterNow } from "../api/clock";
import { type Polled, usePolled } from "../api/poll";
import { link, route } from "../navigation/route";
import { EventList } from "../parts/eventlist";
import { Empty, Head } from "../parts/notices";
import { commandOf } from "../words/command";
import { count, middle, visible } from "../words/format";
import { Actions } from "./client/actions";
import { Drops, longest } from "./client/drops";
import { Facts } from "./client/facts";
import { Queue } from "./client/queue";
import { Rights } from "./client/rights";
import { absent, sentence } from "./client/sentence";
import { Subscriptions } from "./client/subscriptions";
import { useState } from "preact/hooks";

const lookUp = (id: string, abort: AbortSignal) =>
  fitsPath(id)
    ? get("/clients/{client_id}", {}, { client_id: id }, abort)
    : post("/lookup", { client_id: id }, {}, abort);

export function ClientPage() {
  const id = route.value.parameters.id ?? "";
  const polled = usePolled((abort) => lookUp(id, abort), 2000, [id]);
  const [done, setDone] = useState<string | null>(null);
  const short = middle(visible(id), 60);
  const gone = polled.problem?.status === 404;
  return (
    <>
      <Head
        title={`Client ${short}`}
        polled={gone ? undefined : polled}
        request={fitsPath(id) ? `/clients/${id}` : "/lookup"}
        body={fitsPath(id) ? undefined : { client_id: id }}
        command={commandOf("client", [id])}
        actions={
          polled.value &&
          !gone && (
            <Actions
              id={id}
              client={polled.value}
              done={(what) => {
                setDone(what);
                polled.again();
              }}
            />
          )
        }
      >
        <span data-copy={id}>{gone ? absent(polled.problem!) : polled.value && sentence(polled.value)}</span>
        {done && (
          <>
            {" "}
            <strong>{done}</strong>
          </>
        )}
      </Head>
      {polled.value && !gone && (
        <>
          <Facts polled={polled as Polled<Client>} />
          <Tabs id={id} client={polled.value} />
        </>
      )}
      {gone && (
        <p>
          <a href={link("clients", { prefix: id.slice(0, 200) })}>Clients with this prefix</a> ·{" "}
          <a href={link("drops", { client: id.slice(0, 200) })}>drops of this client</a>
        </p>
      )}
    </>
  );
}

const tabs = ["subscriptions", "queue", "drops", "rights", "events"] as const;

function Tabs({ id, client }: { id: string; client: Client }) {
  const tab = tabs.find((name) => name === route.value.parameters.tab) ?? "subscriptions";
  return (
    <>
      <nav class="tabs" aria-label="Parts of the client">
        {tabs.map((name) => (
          <a key={name} href={link("client", { id, tab: name })} aria-current={name === tab ? "true" : undefined}>
            {name[0]!.toUpperCase() + name.slice(1)}
            {name === "subscriptions" && ` ${count(client.subscriptions?.count)}`}
            {name === "queue" && ` ${count(client.queue?.messages)}`}
          </a>
        ))}
      </nav>
      {tab === "subscriptions" && <Subscriptions id={id} client={client} />}
      {tab === "queue" && <Queue id={id} waiting={client.queue?.messages ?? 0} />}
      {tab === "drops" && <Drops id={id} client={client} />}
      {tab === "rights" && <Rights key={id} id={id} />}
      {tab === "events" &&
        (id.length > longest ? (
          <Empty>The identifier is too long to ask for its events.</Empty>
        ) : (
          <ClientEvents id={id} />
        ))}
    </>
  );
}

/** What the nodes remember of the last day, and what happens now. */
function ClientEvents({ id }: { id: string }) {
  const [since] = useState(() => new Date(clusterNow() - 86_400_000).toISOString());
  return <EventList query={{ client_id: id, since }} />;
}
