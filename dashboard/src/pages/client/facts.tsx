// What is known of the connection, the session and the queue of a client.
import type { Client } from "../../api/api.types";
import { secondsSince } from "../../api/clock";
import { heldBecause, share } from "../../api/held";
import type { Polled } from "../../api/poll";
import { flow, useClientRates } from "../../api/watch";
import { link } from "../../navigation/route";
import { isStale } from "../../parts/notices";
import { Ago, Bar, ClientLink, Fact, Foreign, Moment, State } from "../../parts/text";
import { bytes, count, duration, unknown, visible, words } from "../../words/format";
import { isFull } from "./sentence";

export function Facts({ polled }: { polled: Polled<Client> }) {
  const client = polled.value!;
  const { connection, session, queue, will, last_departure: left } = client;
  const drops = client.recent_drops.length;
  const rates = useClientRates(client.client_id, client.state === "connected");
  return (
    <div class={`facts ${isStale(polled) ? "stale" : ""}`}>
      <section>
        <h2>
          Connection <State is={client.state} />
        </h2>
        <dl>
          {connection && (
            <>
              <Fact name="Address">{connection.address}</Fact>
              <Fact name="Node">
                {client.node && (
                  <a href={link("nodes", { node: client.node })}>{visible(client.node_name ?? client.node)}</a>
                )}
              </Fact>
              <Fact name="Listener">{connection.listener ?? unknown}</Fact>
              <Fact name="Since">
                <Moment at={connection.connected_at} />
              </Fact>
              <Fact name="Messages in">{flow(rates?.messages_in_per_s, rates?.bytes_in_per_s)}</Fact>
              <Fact name="Messages out">{flow(rates?.messages_out_per_s, rates?.bytes_out_per_s)}</Fact>
              {connection.write_blocked && (
                <Fact name="Socket">
                  <State is="full" say="the client does not read" />
                </Fact>
              )}
            </>
          )}
          {client.held && (
            <Fact name="Waits">
              {client.held.since ? <State is="full" say="its packets wait" /> : "not now"}:{" "}
              {heldBecause(client.held.reason)}
              {client.held.subscriber && (
                <>
                  {" "}
                  (<ClientLink id={client.held.subscriber} most={20} />)
                </>
              )}
              ; {share(client.held)} of the last minute
              {client.held.since && (
                <>
                  , since <Moment at={client.held.since} />
                </>
              )}
              {client.held.option && (
                <>
                  ;{" "}
                  <code class="foreign">
                    {visible(client.held.option)}
                    {client.held.limit !== null && ` = ${client.held.limit}`}
                  </code>
                </>
              )}
            </Fact>
          )}
          <Fact name="User">{client.user === null ? "none (anonymous)" : <Foreign text={client.user} />}</Fact>
          <Fact name="Last left">
            {left ? (
              <>
                <Moment at={left.at} /> from {visible(left.node_name)}: {words(left.reason)}
              </>
            ) : (
              unknown
            )}
          </Fact>
        </dl>
      </section>
      <section>
        <h2>Session</h2>
        <dl>
          <Fact name="Kind">
            {session === null
              ? unknown
              : session.durable
                ? `durable, ends ${session.expiry_s === null ? "never" : `${duration(session.expiry_s)} after the connection`}`
                : "ends with the connection"}
          </Fact>
          {session?.ends_at && (
            <Fact name="Ends">
              <Moment at={session.ends_at} />
            </Fact>
          )}
          <Fact name="Class">{session?.class ? visible(session.class) : unknown}</Fact>
          <Fact name="Shard">
            {session?.shard == null ? (
              unknown
            ) : (
              <a href={link("shards", { shard: `inbox ${session.shard}` })}>inbox {session.shard}</a>
            )}
          </Fact>
        </dl>
        <h2>CONNECT packet</h2>
        <dl>
          {connection && (
            <>
              <Fact name="Version">MQTT {connection.version}</Fact>
              <Fact name="Keep alive">{connection.keep_alive_s === 0 ? "off" : `${connection.keep_alive_s} s`}</Fact>
              <Fact name="Session expiry">{session === null ? unknown : expiry(session.expiry_s)}</Fact>
              <Fact name="Receive max.">{count(connection.receive_maximum)} in flight</Fact>
              <Fact name="Max. packet">
                {connection.maximum_packet_bytes === null ? "no limit" : bytes(connection.maximum_packet_bytes)}
              </Fact>
            </>
          )}
          <Fact name="Will">
            {will ? (
              <>
                <Foreign text={will.topic} />, QoS {will.qos}
                {will.retain && ", retained"}
                {will.delay_s > 0 && `, after ${duration(will.delay_s)}`}
              </>
            ) : (
              "none"
            )}
          </Fact>
        </dl>
      </section>
      <section>
        <h2>Queue {isFull(client) && <State is="full" />}</h2>
        <dl>
          <Fact name="Messages">
            {queue ? (
              <>
                {count(queue.messages)} of {count(queue.limit_messages)}{" "}
                <Bar part={queue.limit_messages ? queue.messages / queue.limit_messages : null} />
              </>
            ) : (
              unknown
            )}
          </Fact>
          <Fact name="Bytes">{queue ? `${bytes(queue.bytes)} of ${bytes(queue.limit_bytes)}` : unknown}</Fact>
          <Fact name="Oldest">
            {queue?.oldest_at ? (
              <>
                <Ago at={queue.oldest_at} /> ago
              </>
            ) : (
              unknown
            )}
          </Fact>
          <Fact name="In flight">
            {count(client.in_flight)}
            {connection && ` of ${count(connection.receive_maximum)}`}
          </Fact>
          {client.waits_for && (
            <Fact name="Waits for">
              {client.waits_for === "receive_maximum"
                ? "acknowledgements: its receive maximum is reached"
                : "the acknowledgement of its oldest message in flight"}
            </Fact>
          )}
          <Fact name="Holds back">
            <Clients ids={client.holds_back} />
          </Fact>
          <Fact name="Held by">
            <Clients ids={client.held_by} />
          </Fact>
          <Fact name="Drops">
            <a href={link("client", { id: client.client_id, tab: "drops" })}>
              {drops === 0 ? "none remembered" : `last ${duration(secondsSince(client.recent_drops[0]!.at))} ago`}
            </a>
          </Fact>
        </dl>
      </section>
    </div>
  );
}

const expiry = (seconds: number | null) =>
  seconds === null ? "never" : seconds === 0 ? "at the end of the connection" : duration(seconds);

export const Clients = ({ ids }: { ids: string[] }) =>
  ids.length === 0 ? (
    <>nobody</>
  ) : (
    <>
      {ids.slice(0, 5).map((id, n) => (
        <span key={id}>
          {n > 0 && ", "}
          <ClientLink id={id} most={20} />
        </span>
      ))}
      {ids.length > 5 && `, ${count(ids.length - 5)} more`}
    </>
  );
