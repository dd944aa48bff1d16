// Who has changed what, from where, and when?
import { useEffect, useRef, useState } from "preact/hooks";
import type { AuditHead, AuditRow } from "../api/api.types";
import { ApiError, apiUrl, fill, firstLines, get } from "../api/api";
import { Copy } from "../access/change";
import {
  actions,
  actorOf,
  fieldLines,
  fieldSays,
  headSays,
  inWords,
  isLong,
  meansSays,
  nameOfField,
  targetLink,
  told,
} from "../access/auditwords";
import { clusterNow, second, showTime } from "../api/clock";
import { commandOf } from "../words/command";
import { middle, unknown, visible } from "../words/format";
import { Pager, usePages } from "../parts/list";
import { Empty, Head, Notices, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { zone } from "../navigation/preferences";
import { link, replaceParameters, route } from "../navigation/route";
import { mayAudit, me } from "../api/session";
import { askToSignIn } from "../parts/signin";
import { Table } from "../parts/table";
import { Foreign, Moment } from "../parts/text";

export function AuditPage() {
  return mayAudit() ? <Audit /> : <NoRight />;
}

function NoRight() {
  const who = me.value;
  return (
    <>
      <Head title="Audit">
        {who &&
          `Administrators see who has changed what, and so do people and keys with the right audits${who.user || who.key ? `; you are ${who.role === "operator" ? "an operator" : "a viewer"} without it` : ""}.`}
      </Head>
      {who && !who.user && (
        <p>
          <button type="button" onClick={() => askToSignIn()}>
            Sign in…
          </button>
        </p>
      )}
      {who?.user && (
        <Empty>
          An administrator can give you the right on the page <em>People & keys</em>, or with{" "}
          <code>{commandOf("person set", [who.user], { audits: "true" })}</code>
        </Empty>
      )}
    </>
  );
}

const spans: Record<string, [label: string, seconds: number]> = {
  "1h": ["the last hour", 3600],
  "1d": ["the last day", 86_400],
  "7d": ["the last 7 days", 7 * 86_400],
  "30d": ["the last 30 days", 30 * 86_400],
};
const filters = ["actor", "action", "target", "since"] as const;
type Asked = Record<(typeof filters)[number], string | undefined>;

/** `head`: `null`: there is no audit yet. */
interface Standing {
  head: AuditHead | null;
  last: AuditRow | null;
}

async function look(abort: AbortSignal): Promise<Standing> {
  try {
    const [head, latest] = await Promise.all([
      get("/audit/head", {}, {}, abort),
      get("/audit", { limit: 1 }, {}, abort),
    ]);
    return { head, last: latest.items[0] ?? null };
  } catch (error) {
    // A node that cannot read its copy answers the same as one of a cluster without an audit.
    if (
      error instanceof ApiError &&
      error.problem.status === 503 &&
      (await get("/control", {}, {}, abort)).standing === "unused"
    )
      return { head: null, last: null };
    throw error;
  }
}

/** When the first entry was made that is kept. The API says it in an export alone, of which no more is read. */
function useSince(first: number | undefined): string | null {
  const [since, setSince] = useState<string | null>(null);
  useEffect(() => {
    if (first === undefined) return;
    const abort = new AbortController();
    firstLines(fill("/audit/export", { from: first }), 2, abort.signal).then(
      ([, entry]) => {
        const at = (entry as { at_ms?: unknown } | undefined)?.at_ms;
        setSince(typeof at === "number" ? new Date(at).toISOString() : null);
      },
      () => {},
    );
    return () => abort.abort();
  }, [first]);
  return since;
}

function Audit() {
  const { actor, action, target, since: span } = route.value.parameters;
  const asked: Asked = { actor, action, target, since: span };
  const key = filters.map((name) => asked[name] ?? "").join("\0");
  // The span begins where the page was opened: a question that changed with each second would begin anew each time.
  const begun = useRef<{ key: string; since: string | undefined }>({ key: "\0", since: undefined });
  if (begun.current.key !== key)
    begun.current = {
      key,
      since:
        spans[span ?? ""] &&
        new Date(Math.floor(clusterNow() / 1000 - spans[span!]![1]) * 1000).toISOString().replace(".000Z", "Z"),
    };
  const query = { actor, action, target, since: begun.current.since };
  const standing = usePolled(look, 10_000, []);
  const nodes = usePolled((abort) => get("/nodes", {}, {}, abort), 30_000, []);
  const nameOf = (id: string) => nodes.value?.items.find((node) => node.node === id)?.node_name ?? id;
  const now = standing.value;
  const since = useSince(now?.head?.first);
  void second.value;
  const last = now?.last ? { actor: middle(visible(actorOf(now.last, nameOf)), 40), at: now.last.at } : null;
  return (
    <>
      <Head
        title="Audit"
        polled={standing}
        request={fill("/audit", query)}
        command={commandOf("audit list", [], query)}
      >
        {now &&
          (now.head ? inWords(now.head, since, last, clusterNow(), zone.value) : "Nobody has changed anything yet.")}
      </Head>
      {now && !now.head && (
        <Empty>
          The audit begins with the first user, group, rule, person or key of the store. From then on it has every
          change, every login at the HTTP API, and what people and programs do to clients, bans, nodes and shards.
        </Empty>
      )}
      {now?.head && (
        <>
          <Filters asked={asked} />
          <Entries
            query={query}
            isAlone={standing.problem === null}
            isFiltered={filters.some((name) => asked[name])}
            nameOf={nameOf}
          />
          <Chain head={now.head} />
        </>
      )}
    </>
  );
}

/** `isAlone`: nothing else says what is wrong with the answers. */
function Entries({
  query,
  isAlone,
  isFiltered,
  nameOf,
}: {
  query: Record<string, string | undefined>;
  isAlone: boolean;
  isFiltered: boolean;
  nameOf(node: string): string;
}) {
  const pages = usePages<AuditRow>(
    (after, abort) => get("/audit", { ...query, limit: 100, after }, {}, abort),
    10_000,
    Object.values(query),
  );
  const rows = pages.value?.items ?? [];
  return (
    <>
      {isAlone && <Notices polled={pages} />}
      {pages.value && rows.length === 0 ? (
        <Empty>
          {pages.forward
            ? "None of the entries that were looked at matches; Next looks at earlier ones."
            : isFiltered
              ? "No entry matches. Names and targets have to be typed in full; actions are found by their beginning."
              : "There are no entries."}
        </Empty>
      ) : (
        <Table
          label="Entries of the audit"
          open
          choose="audit"
          rows={rows}
          keyOf={(row) => row.number}
          stale={isStale(pages)}
          columns={[
            { head: "When", width: 12, cell: (row) => <Moment at={row.at} /> },
            {
              head: "Who",
              width: 17,
              cell: (row) => (
                <span class="wrap">
                  <Who row={row} nameOf={nameOf} />
                </span>
              ),
            },
            {
              head: "From",
              width: 13,
              cell: (row) =>
                row.address === null ? (
                  <span title="not over a network">{unknown}</span>
                ) : (
                  <Foreign text={row.address} most={24} />
                ),
            },
            { head: "Action", width: 15, cell: (row) => <code>{visible(row.action)}</code> },
            { head: "Target", width: 15, cell: (row) => <Target row={row} /> },
            { head: "What", cell: (row) => <What row={row} /> },
            { head: "Node", width: 9, cell: (row) => visible(nameOf(row.node)) },
          ]}
        />
      )}
      <Pager pages={pages} what="entry" many="entries" />
    </>
  );
}

function Who({ row, nameOf }: { row: AuditRow; nameOf(node: string): string }) {
  const actor = actorOf(row, nameOf);
  return (
    <>
      {row.actor === "" ? (
        visible(actor) || unknown
      ) : (
        <Foreign text={actor} most={24} href={link("audit", { actor })} />
      )}{" "}
      <span class="soft">{meansSays(row.means)}</span>
    </>
  );
}

function Target({ row }: { row: AuditRow }) {
  const href = targetLink(row);
  if (row.target === "") return href ? <a href={href}>the rules for everybody</a> : unknown;
  return <Foreign text={row.target} most={24} {...(href ? { href } : {})} />;
}

/** What is too long for a line is folded. */
function What({ row }: { row: AuditRow }) {
  const fields = told(row.fields);
  const says = fields.map((field) => fieldSays(field, showTime)).join(" · ");
  if (!isLong(fields, says)) return <span class="wrap">{visible(says)}</span>;
  return (
    <details class="fold">
      <summary>{middle(visible(says), 100)}</summary>
      <dl>
        {fields.map((field) => (
          <div key={field.name}>
            <dt>{visible(nameOfField(field.name))}</dt>
            <dd>
              <Lines field={field} />
            </dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

function Lines({ field }: { field: AuditRow["fields"][number] }) {
  const lines = fieldLines(field, showTime);
  if (lines.length === 0) return <>{visible(fieldSays(field, showTime))}</>;
  const isOne = field.before === null || field.after === null;
  return (
    <>
      {lines.map(({ mark, line }, n) => (
        <code key={n}>
          {!isOne && (
            <>
              <span class="said">{mark === "+" ? "added" : "removed"}</span>
              <span aria-hidden="true">{mark} </span>
            </>
          )}
          {visible(line)}
        </code>
      ))}
    </>
  );
}

const file = "audit.ndjson";

function Chain({ head }: { head: AuditHead }) {
  return (
    <section>
      <h2 class="section-title">The head of the chain</h2>
      <p class="answer">
        Each entry has the hash of all entries before it. Keep the head outside the cluster: with it,{" "}
        <code>heraldmq audit verify</code> tells later whether somebody has rewritten the audit on all nodes.{" "}
        <a href={apiUrl("/audit/export")} download={file}>
          Export all entries
        </a>{" "}
        saves what the command reads.
      </p>
      <div class="command-line">
        <span class="soft small">The head, {headSays(head)}:</span>
        <code data-head>{head.head}</code>
        <Copy text={head.head} />
      </div>
      <div class="command-line">
        <span class="soft small">Whether an export is whole, and has this head:</span>
        <code>{commandOf("audit verify", [file], { head: head.head }, "")}</code>
      </div>
    </section>
  );
}

function Filters({ asked }: { asked: Asked }) {
  const [draft, setDraft] = useState(asked);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => setDraft(asked), [JSON.stringify(asked)]);
  useEffect(() => () => clearTimeout(timer.current), []);
  function set(name: string, value: string) {
    const next = { ...draft, [name]: value };
    setDraft(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => replaceParameters(next), 300);
  }
  const text = (name: "actor" | "action" | "target", label: string, list?: string) => (
    <label class="field">
      {label}
      <input
        value={draft[name] ?? ""}
        list={list}
        onInput={(event) => set(name, event.currentTarget.value)}
        autocomplete="off"
        spellcheck={false}
      />
    </label>
  );
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()}>
      {text("actor", "Who")}
      {text("action", "Action begins with", "audit-actions")}
      {text("target", "Target")}
      <label class="field">
        Since
        <select value={draft.since ?? ""} onChange={(event) => set("since", event.currentTarget.value)}>
          <option value="">the first entry</option>
          {Object.entries(spans).map(([name, [label]]) => (
            <option key={name} value={name}>
              {label}
            </option>
          ))}
        </select>
      </label>
      <datalist id="audit-actions">
        {actions.map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
    </form>
  );
}
