// What will a new subscriber see?
import { useEffect, useState } from "preact/hooks";
import type { Counts, Message, RetainedLevelRow, RetainedRow } from "../api/api.types";
import { get, missingOf, problemOf, remove, type Problem } from "../api/api";
import { BranchActions } from "../parts/branchactions";
import { Action } from "../parts/dialog";
import { bytes, count, plural, visible } from "../words/format";
import { Pager, usePages } from "../parts/list";
import { Empty, Failed, Head, Notices, Partial, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { replaceParameters, route } from "../navigation/route";
import { may } from "../api/session";
import { Table } from "../parts/table";
import { Fact, Foreign, Moment } from "../parts/text";

export function Retained() {
  const { filter = "", topic } = route.value.parameters;
  const [draft, setDraft] = useState(filter);
  const stats = usePolled((abort) => get("/stats", {}, {}, abort), 10_000, []);
  const show = (shown: string | undefined) => replaceParameters({ filter, topic: shown });
  return (
    <>
      <Head
        title="Retained"
        polled={stats}
        request={filter ? `/retained?filter=${encodeURIComponent(filter)}` : "/retained/levels"}
      >
        {stats.value &&
          (stats.value.total.retained_messages === 0
            ? "There are no retained messages."
            : `${plural(stats.value.total.retained_messages, "message is", "messages are")} retained. A new subscriber gets those that match its filter.`)}
        {stats.value && <Ended counts={stats.value.total} />}
      </Head>
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          replaceParameters({ filter: draft, topic });
        }}
      >
        <label class="field wide">
          Topic filter
          <input
            value={draft}
            placeholder="all topics, as a tree"
            onInput={(event) => setDraft(event.currentTarget.value)}
            spellcheck={false}
            autocomplete="off"
          />
        </label>
        <button type="submit">List</button>
        {filter && (
          <button
            type="button"
            onClick={() => {
              setDraft("");
              replaceParameters({ topic });
            }}
          >
            As a tree
          </button>
        )}
      </form>
      <div class="two even">
        {filter ? (
          <Matching filter={filter} show={show} />
        ) : (
          <div class="panel">
            <Levels below={null} chosen={topic} show={show} />
          </div>
        )}
        {topic !== undefined ? (
          <One key={topic} topic={topic} gone={() => show(undefined)} />
        ) : (
          <Empty>Choose a topic to see its message.</Empty>
        )}
      </div>
    </>
  );
}

/** What no client has removed, since the nodes have started. */
function Ended({ counts }: { counts: Counts }) {
  const { retained_expired: expired, retained_removed: removed } = counts;
  if (expired + removed === 0) return null;
  return (
    <>
      {" "}
      Since the nodes have started {plural(expired, "message has", "messages have")} expired, and rules have removed{" "}
      {count(removed)}.
    </>
  );
}

function Matching({ filter, show }: { filter: string; show(topic: string): void }) {
  const pages = usePages<RetainedRow>(
    (after, abort) => get("/retained", { filter, after, limit: 100 }, {}, abort),
    30_000,
    [filter],
  );
  if (pages.value?.items.length === 0 && missingOf(pages.value).length === 0 && !pages.forward)
    return (
      <Empty>
        No retained message matches <Foreign text={filter} />.
      </Empty>
    );
  return (
    <div>
      <Notices polled={pages} />
      <Table
        label="Retained messages"
        open
        rows={pages.value?.items ?? []}
        keyOf={(row) => row.topic}
        stale={isStale(pages)}
        columns={[
          { head: "Topic", cell: (row) => <TopicButton topic={row.topic} text={row.topic} show={show} /> },
          { head: "QoS", width: 6, figure: true, cell: (row) => row.qos },
          { head: "Size", width: 10, figure: true, cell: (row) => bytes(row.payload_bytes) },
          {
            head: "Retained",
            width: 14,
            cell: (row) => (row.retained_at ? <Moment at={row.retained_at} /> : "not known"),
          },
          { head: "Expires", width: 14, cell: (row) => (row.expires_at ? <Moment at={row.expires_at} /> : "never") },
        ]}
      />
      <Pager pages={pages} what="message" />
    </div>
  );
}

/** The levels above a topic: `a` and `a/b` of `a/b/c`. */
const above = (topic = "") =>
  topic
    .split("/")
    .slice(0, -1)
    .map((_, n, levels) => levels.slice(0, n + 1).join("/"));

const TopicButton = ({ topic, text, show }: { topic: string; text: string; show(topic: string): void }) => (
  <button type="button" class="link" onClick={() => show(topic)}>
    <Foreign text={text} most={48} />
  </button>
);

/** `2` before `10`. */
const natural = new Intl.Collator("en", { numeric: true });

/** One level of the tree; further ones are asked for when they are opened. */
function Levels({
  below,
  chosen,
  show,
}: {
  below: string | null;
  chosen: string | undefined;
  show(topic: string): void;
}) {
  const [rows, setRows] = useState<RetainedLevelRow[] | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [missing, setMissing] = useState(missingOf(null));
  const [open, setOpen] = useState<ReadonlySet<string>>(() => new Set(above(chosen)));
  function more(after: string | null) {
    get("/retained/levels", { below, after, limit: 100 }).then(
      (page) => {
        setRows((old) => [...(after === null ? [] : (old ?? [])), ...page.items]);
        setNext(page.next);
        setMissing(page.partial);
        setProblem(null);
      },
      (error) => setProblem(problemOf(error)),
    );
  }
  useEffect(() => more(null), [below]);
  function toggle(topic: string) {
    const now = new Set(open);
    if (!now.delete(topic)) now.add(topic);
    setOpen(now);
  }
  if (problem) return <Failed problem={problem} again={() => more(null)} />;
  if (rows?.length === 0)
    return (
      <Empty>
        There are no retained messages. A message that is published with the retain flag stays here until another
        message on the same topic replaces it.
      </Empty>
    );
  return (
    <>
      <Partial missing={missing} again={() => more(null)} />
      <ul class="tree">
        {[...(rows ?? [])]
          .sort((a, b) => natural.compare(a.topic, b.topic))
          .map((row) => {
            const level = below === null ? row.topic : row.topic.slice(below.length + 1);
            return (
              <li key={row.topic}>
                <div class={row.topic === chosen ? "chosen" : ""}>
                  {row.has_more_below ? (
                    <button
                      type="button"
                      class="quiet toggle"
                      aria-expanded={open.has(row.topic)}
                      aria-label={`levels below ${visible(row.topic).slice(0, 200)}`}
                      onClick={() => toggle(row.topic)}
                    >
                      {open.has(row.topic) ? "▾" : "▸"}
                    </button>
                  ) : (
                    <span class="toggle" />
                  )}
                  {row.has_message ? (
                    <TopicButton topic={row.topic} text={level} show={show} />
                  ) : (
                    <Foreign text={level} most={48} />
                  )}
                  {row.has_more_below && <BranchActions topic={row.topic} gone={() => more(null)} />}
                </div>
                {open.has(row.topic) && <Levels below={row.topic} chosen={chosen} show={show} />}
              </li>
            );
          })}
      </ul>
      {next !== null && (
        <button type="button" onClick={() => more(next)}>
          Show more ({count(rows?.length)} shown)
        </button>
      )}
    </>
  );
}

function One({ topic, gone }: { topic: string; gone(): void }) {
  const allowed = may("operator");
  const [asked, setAsked] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const polled = usePolled<Message | null>(
    (abort) => (allowed ? get("/retained/message", { topic }, {}, abort) : Promise.resolve(null)),
    10_000,
    [topic, allowed],
  );
  if (!allowed) return <Empty>Only operators can see payloads.</Empty>;
  const message = polled.value;
  async function clear() {
    setAsked(false);
    try {
      await remove("/retained/message", { topic });
      gone();
    } catch (error) {
      setProblem(problemOf(error));
    }
  }
  return (
    <section class="panel">
      <h2>
        <Foreign text={topic} most={80} />
      </h2>
      <Notices polled={polled} />
      {problem && <Failed problem={problem} />}
      {message && (
        <>
          <dl>
            <Fact name="Size">
              {bytes(message.payload_bytes)}, QoS {message.qos}
            </Fact>
            <Fact name="Expires">{message.expires_at ? <Moment at={message.expires_at} /> : "never"}</Fact>
            {message.content_type !== null && (
              <Fact name="Content type">
                <Foreign text={message.content_type} />
              </Fact>
            )}
            {message.response_topic !== null && (
              <Fact name="Response topic">
                <Foreign text={message.response_topic} />
              </Fact>
            )}
            {message.user_properties.slice(0, 20).map((property) => (
              <Fact key={property.name} name={visible(property.name).slice(0, 40)}>
                <Foreign text={property.value} />
              </Fact>
            ))}
          </dl>
          <pre class="payload" tabIndex={0}>
            {payload(message)}
          </pre>
          {asked ? (
            <span class="in-place">
              Remove this message? Current subscribers receive an empty message.{" "}
              <button type="button" class="danger" onClick={clear}>
                Remove
              </button>
              <button type="button" onClick={() => setAsked(false)}>
                Cancel
              </button>
            </span>
          ) : (
            <Action needs="operator" onClick={() => setAsked(true)}>
              Remove…
            </Action>
          )}
        </>
      )}
    </section>
  );
}

/** Text as it is, JSON indented, everything else as base64. */
function payload({ payload: text, encoding }: Message): string {
  if (text === null) return "(too large to be shown)";
  if (encoding === "base64") return `base64: ${text.slice(0, 4096)}`;
  const shown = /^\s*[[{]/.test(text) ? indented(text) : text;
  return shown.slice(0, 4096).split("\n").map(visible).join("\n");
}

function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
