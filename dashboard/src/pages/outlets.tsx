// Do messages reach other systems, and which outlet is behind?
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { OutletFigures, OutletRow } from "../api/api.types";
import { ask, fill, get } from "../api/api";
import { commandOf } from "../words/command";
import { Action, Confirm } from "../parts/dialog";
import { bytes, count, duration, middle, milliseconds, plural, unknown, visible } from "../words/format";
import { Empty, Head, isStale, Told } from "../parts/notices";
import { usePolled } from "../api/poll";
import { link, route } from "../navigation/route";
import { Table } from "../parts/table";
import { Ago, ClientLink, Fact, Foreign, Moment, State, TopicLink } from "../parts/text";

type Change = { row: OutletRow; what: "pause" | "resume" };

export function Outlets() {
  const outlets = usePolled((abort) => get("/outlets", {}, {}, abort), 5000, []);
  const nodes = usePolled((abort) => get("/nodes", {}, {}, abort), 10_000, []);
  const [change, setChange] = useState<Change | null>(null);
  const [told, setTold] = useState<string | null>(null);
  const rows = outlets.value?.items ?? [];
  const chosen = rows.find((row) => row.name === route.value.parameters.outlet);
  const nameOf = (node: string) => nodes.value?.items.find((one) => one.node === node)?.node_name ?? node;
  const atNode = (row: OutletRow) =>
    row.node === null ? unknown : <a href={link("nodes", { node: row.node })}>{visible(nameOf(row.node))}</a>;
  return (
    <>
      <Head title="Outlets" polled={outlets} request="/outlets" command={commandOf("outlet list")}>
        {outlets.value && rows.length > 0 && sentence(rows)}
      </Head>
      <Told>{told}</Told>
      {outlets.value && rows.length === 0 ? (
        <Empty>
          No outlet or inlet is configured. An outlet takes messages to a file, an HTTP server or another MQTT broker,
          an inlet brings messages of another MQTT broker, of Kafka or of NATS in: the pages docs/operate/outlets.md and
          docs/operate/inlets.md of the documentation say how to configure them.
        </Empty>
      ) : (
        <Table
          label="Outlets"
          rows={rows}
          keyOf={(row) => row.name}
          stale={isStale(outlets)}
          tone={(row) => (row.name === chosen?.name ? "chosen" : "")}
          columns={[
            {
              head: "Outlet",
              width: 16,
              cell: (row) => <Foreign text={row.name} most={24} href={link("outlets", { outlet: row.name })} />,
            },
            { head: "State", width: 13, cell: stateOf },
            { head: "Way", width: 5, cell: (row) => row.direction },
            {
              head: "Other side",
              cell: (row) => (
                <>
                  {row.target} <Foreign text={row.place} most={36} />
                </>
              ),
            },
            { head: "Node", width: 10, cell: atNode },
            {
              head: "Waiting",
              width: 10,
              figure: true,
              by: (row) => row.figures?.lag_messages ?? null,
              cell: (row) => count(row.figures?.lag_messages),
            },
            {
              head: "Delivered",
              width: 11,
              figure: true,
              by: (row) => row.figures?.delivered ?? null,
              cell: (row) => count(row.figures?.delivered),
            },
            {
              head: "Dead",
              width: 8,
              figure: true,
              by: (row) => row.figures?.dead ?? null,
              cell: (row) => count(row.figures?.dead),
            },
            {
              head: "Dropped",
              width: 10,
              figure: true,
              by: (row) => dropped(row.figures),
              cell: (row) => count(dropped(row.figures)),
            },
            {
              head: "Last error",
              width: 24,
              cell: (row) => {
                const error = errorOf(row.figures);
                return error === null ? "" : <span title={visible(error)}>{middle(visible(error), 40)}</span>;
              },
            },
            {
              head: "Actions",
              width: 18,
              figure: true,
              cell: (row) => (
                <span class="in-place end">
                  {row.paused !== true && (
                    <Action needs="operator" onClick={() => setChange({ row, what: "pause" })}>
                      Pause…
                    </Action>
                  )}
                  {row.paused !== false && (
                    <Action needs="operator" onClick={() => setChange({ row, what: "resume" })}>
                      Resume…
                    </Action>
                  )}
                </span>
              ),
            },
          ]}
        />
      )}
      {rows.some((row) => row.figures === null) && (
        <p class="soft small">
          A node that runs an outlet does not say what the outlet does, or no node runs it: its figures, and whether it
          is paused, are not known.
        </p>
      )}
      {chosen && <Details row={chosen} node={atNode(chosen)} />}
      {change && (
        <Confirmation
          {...change}
          close={() => setChange(null)}
          done={(what) => {
            setTold(what);
            outlets.again();
          }}
        />
      )}
    </>
  );
}

/** Dead letters that nobody subscribes to, and what was refused without a topic for dead letters; `null`: not known here. */
const dropped = (figures: OutletFigures | null) =>
  figures && figures.dropped.dead_letter_unclaimed + figures.dropped.refused;

/** Why it fails; `null`: it does not, or that is not known here. */
const errorOf = (figures: OutletFigures | null) =>
  figures && (figures.last_error ?? (figures.failing_s === null ? null : figures.last_end));

const shapes: Record<OutletRow["state"], string> = {
  starting: "connecting",
  opening: "connecting",
  running: "ok",
  retrying: "silent",
  paused: "away",
  fenced: "away",
  elsewhere: "away",
};

function stateOf(row: OutletRow) {
  if (row.node === null) return <State is="down" say="no leader" />;
  return <State is={shapes[row.state] ?? "away"} say={row.state === "elsewhere" ? "not known" : row.state} />;
}

function sentence(rows: OutletRow[]) {
  const failing = rows.filter((row) => row.figures?.failing_s != null);
  const nowhere = rows.filter((row) => row.node === null);
  const paused = rows.filter((row) => row.paused === true);
  const parts = [
    failing.length > 0 && (
      <>
        {failing.map((row) => visible(row.name)).join(", ")} {failing.length === 1 ? "fails" : "fail"}
      </>
    ),
    nowhere.length > 0 && (
      <>{plural(nowhere.length, "outlet has", "outlets have")} no node, because the inbox shard has no leader</>
    ),
    paused.length > 0 && <>{plural(paused.length, "is", "are")} paused</>,
  ].filter(Boolean);
  const inlets = rows.filter((row) => row.direction === "in").length;
  const all = [rows.length > inlets && plural(rows.length - inlets, "outlet"), inlets > 0 && plural(inlets, "inlet")]
    .filter(Boolean)
    .join(", ");
  return (
    <>
      {all}
      {parts.length === 0 ? "; none is known to fail." : parts.map((part, n) => <span key={n}>; {part}</span>)}
      {parts.length > 0 && "."}
    </>
  );
}

function Details({ row, node }: { row: OutletRow; node: ComponentChildren }) {
  const figures = row.figures;
  return (
    <section>
      <h2 class="section-title">
        {row.direction === "in" ? "Inlet" : "Outlet"} {middle(visible(row.name), 60)}
      </h2>
      <div class="facts">
        <section>
          <h2>Place</h2>
          <dl>
            <Fact name="State">{stateOf(row)}</Fact>
            <Fact name="Paused">{row.paused === null ? unknown : row.paused ? "yes" : "no"}</Fact>
            <Fact name="Node">{node}</Fact>
            {row.direction === "out" && (
              <Fact name="Session">
                <ClientLink id={`$outlet/${row.name}/0`} tab="queue" />
              </Fact>
            )}
            <Fact name={row.direction === "in" ? "From" : "Target"}>
              {row.target} <Foreign text={row.place} most={48} />
            </Fact>
            <Fact name="Filters">
              {row.filters.map((filter, n) => (
                <span key={filter}>
                  {n > 0 && ", "}
                  <Foreign text={filter} />
                </span>
              ))}
            </Fact>
            {row.direction === "out" && (
              <Fact name="Dead letters to">
                {row.dead_letter === null ? (
                  "nowhere: they are dropped"
                ) : (
                  <TopicLink topic={row.dead_letter} most={36} />
                )}
              </Fact>
            )}
          </dl>
        </section>
        <section>
          <h2>Messages</h2>
          <dl>
            <Fact name="Waiting">
              {row.direction === "in" ? (
                "at the other broker"
              ) : figures ? (
                <>
                  {plural(figures.lag_messages, "message")}, {bytes(figures.lag_bytes)}
                </>
              ) : (
                unknown
              )}
            </Fact>
            <Fact name="Oldest waits">
              {figures ? figures.oldest_at === null ? "none" : <Ago at={figures.oldest_at} /> : unknown}
            </Fact>
            <Fact name="In memory">{count(figures?.waiting_messages)}</Fact>
            <Fact name="Delivered">{count(figures?.delivered)}</Fact>
            <Fact name="Last delivered">
              <Moment at={figures?.delivered_at} />
            </Fact>
            <Fact name="Its position">{visible(figures?.position ?? unknown)}</Fact>
            <Fact name="Filtered">{figures ? `${count(figures.filtered)}, which the rules hold back` : unknown}</Fact>
            <Fact name="Left out">{figures ? `${count(figures.left_out)}, which the target had` : unknown}</Fact>
            <Fact name="Dead letters">
              {figures
                ? `${count(figures.dead)}, ${count(figures.dropped.dead_letter_unclaimed)} without a subscriber`
                : unknown}
            </Fact>
            <Fact name="Refused">{figures ? `${count(figures.dropped.refused)}, which are dropped` : unknown}</Fact>
          </dl>
        </section>
        <section>
          <h2>Attempts</h2>
          <dl>
            <Fact name="Mean of a batch">{milliseconds(figures?.batch_ms)}</Fact>
            <Fact name="Failed">{count(figures?.retries)}</Fact>
            <Fact name="Present one">{figures?.attempt === 0 ? "none" : count(figures?.attempt)}</Fact>
            <Fact name="Fails for">
              {figures && figures.failing_s === null ? "it does not fail" : duration(figures?.failing_s)}
            </Fact>
            <Fact name="Last error">
              {figures ? <span class="wrap">{visible(figures.last_error ?? "none")}</span> : unknown}
            </Fact>
            <Fact name="Process">{figures ? String(figures.process ?? "none") : unknown}</Fact>
            <Fact name="Starts">{count(figures?.starts)}</Fact>
            <Fact name="Last end">
              {figures ? <span class="wrap">{visible(figures.last_end ?? "none by itself")}</span> : unknown}
            </Fact>
          </dl>
        </section>
      </div>
      {figures && <p class="soft small">Counts are since the node that runs it started.</p>}
    </section>
  );
}

function Confirmation({ row, what, close, done }: Change & { close(): void; done(what: string): void }) {
  const name = middle(visible(row.name), 40);
  async function act() {
    await ask("POST", fill(`/outlets/{name}/${what}`, {}, { name: row.name }));
    done(what === "pause" ? `The outlet ${name} is being paused.` : `The pause of the outlet ${name} has ended.`);
  }
  return (
    <Confirm
      title={what === "pause" ? `Pause ${name}?` : `Resume ${name}?`}
      deed={what === "pause" ? "Pause" : "Resume"}
      act={act}
      close={close}
    >
      <p>
        {row.direction === "in"
          ? what === "pause"
            ? "What the inlet has published is finished, and it leaves the other broker. Messages wait there, within its limits. The pause lasts until somebody ends it, over restarts and on all nodes."
            : "The inlet connects to the other broker, and takes the messages that wait there."
          : what === "pause"
            ? "The batch that is with the target is finished, and no further message is given to it. Messages wait in the queue of the session; a full queue drops messages. The pause lasts until somebody ends it, over restarts and on all nodes."
            : "Messages that wait are given to the target, the oldest first. An attempt that failed before is made again at once."}
      </p>
    </Confirm>
  );
}
