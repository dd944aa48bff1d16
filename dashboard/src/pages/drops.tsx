// What is lost, whose, why?
import { useEffect, useRef, useState } from "preact/hooks";
import type { DropRow } from "../api/api.types";
import { get, missingOf } from "../api/api";
import { Chart } from "../parts/chart";
import { commandOf } from "../words/command";
import { DropTable, dropLines } from "../parts/drops";
import { count, plural, rate, visible } from "../words/format";
import { times } from "../api/history";
import { Pager, usePages } from "../parts/list";
import { Empty, Head, Notices, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { meaning, reasonName, remedy } from "../words/reasons";
import { link, replaceParameters, route } from "../navigation/route";
import { Table } from "../parts/table";
import { ClientLink, Moment, TopicLink } from "../parts/text";
import { useHistory } from "../api/usehistory";

const fields = ["reason", "client", "topic"] as const;

export function Drops() {
  const totals = usePolled(
    async (abort) => ({ ...(await get("/drops/totals", {}, {}, abort)), askedAt: Date.now() }),
    5000,
    [],
  );
  const { series } = useHistory();
  const asked = Object.fromEntries(fields.map((name) => [name, route.value.parameters[name]]));
  const pages = usePages<DropRow>(
    (after, abort) => get("/drops", { ...asked, limit: 100, after }, {}, abort),
    5000,
    fields.map((name) => asked[name]),
  );
  const by = groupings.find(([name]) => name === route.value.parameters.by)?.[0];
  const byReason = useReasons(totals.value);
  const now = byReason.reduce((all, row) => all + (row.perSecond ?? 0), 0);
  const known = byReason.some((row) => row.perSecond !== null);
  const all = byReason.reduce((total, row) => total + row.total, 0);
  return (
    <>
      <Head title="Drops" polled={totals} request="/drops/totals" command={commandOf("drops")}>
        {totals.value &&
          (all === 0 ? (
            "No message was dropped since the nodes were started."
          ) : (
            <>
              {known ? `${rate(now)}/s now; ` : ""}
              {plural(all, "message")} since the nodes were started
              {byReason[0] && `, ${percent(byReason[0].total, all)} of them ${reasonName(byReason[0].reason)}`}.
            </>
          ))}
      </Head>
      <div class="two">
        <Chart
          title="Drops per second"
          unit="rate"
          seconds={series ? times(series) : []}
          windowSeconds={3600}
          lines={dropLines(series)}
          stacked
        />
        <Table
          label="Reasons"
          rows={byReason}
          keyOf={(row) => row.reason}
          stale={isStale(totals)}
          columns={[
            {
              head: "Reason",
              width: 22,
              cell: (row) => <a href={link("drops", { ...asked, reason: row.reason })}>{reasonName(row.reason)}</a>,
            },
            { head: "Now /s", width: 7, figure: true, cell: (row) => rate(row.perSecond) },
            { head: "Since start", width: 11, figure: true, cell: (row) => count(row.total) },
            {
              head: "What helps",
              cell: (row) => (
                <span class="wrap" title={meaning(row.reason)}>
                  {remedy(row.reason)}
                </span>
              ),
            },
          ]}
        />
      </div>
      <div class="section-head">
        <h2>{by === "client" ? "Drops by client" : by === "topic" ? "Latest drops by topic" : "Latest drops"}</h2>
        <span class="switch">
          {groupings.map(([name, label]) => (
            <button
              key={label}
              type="button"
              aria-pressed={by === name}
              onClick={() => replaceParameters({ ...asked, by: name })}
            >
              {label}
            </button>
          ))}
        </span>
      </div>
      {by === "client" ? (
        <ByClient />
      ) : by === "topic" ? (
        <>
          <Filters asked={asked} reasons={byReason.map((row) => row.reason)} />
          <ByTopic asked={asked} />
        </>
      ) : (
        <>
          <Filters asked={asked} reasons={byReason.map((row) => row.reason)} />
          <Notices polled={pages} />
          {pages.value && pages.value.items.length > 0 && !asked.client && <Losers rows={pages.value.items} />}
          {pages.value &&
            (pages.value.items.length === 0 ? (
              <Empty>
                {missingOf(pages.value).length > 0
                  ? "No drops on the nodes that answered."
                  : "No remembered drop matches. Each node remembers about the last thousand."}
              </Empty>
            ) : (
              <DropTable rows={pages.value.items} stale={isStale(pages)} />
            ))}
          <Pager pages={pages} what="drop" />
        </>
      )}
    </>
  );
}

const groupings: [name: string | undefined, label: string][] = [
  [undefined, "one by one"],
  ["client", "by client"],
  ["topic", "by topic"],
];

/** What each client has lost since its session began, on all nodes. */
function ByClient() {
  const sessions = usePolled((abort) => get("/drops/sessions", { limit: 500 }, {}, abort), 5000, []);
  const rows = sessions.value?.items ?? [];
  return (
    <>
      <Notices polled={sessions} />
      {sessions.value && rows.length === 0 ? (
        <Empty>No client has lost a message since the nodes were started.</Empty>
      ) : (
        <Table
          label="Drops by client"
          open
          rows={rows}
          keyOf={(row) => `${row.node} ${row.client_id}`}
          stale={isStale(sessions)}
          columns={[
            { head: "Client", by: (row) => row.client_id, cell: (row) => <ClientLink id={row.client_id} most={30} /> },
            { head: "Dropped", width: 11, figure: true, by: (row) => -row.dropped, cell: (row) => count(row.dropped) },
            {
              head: "Reasons",
              width: 44,
              cell: (row) =>
                Object.entries(row.reasons)
                  .sort((a, b) => b[1] - a[1])
                  .map(([reason, n]) => `${reasonName(reason)} ${count(n)}`)
                  .join(", "),
            },
            { head: "First", width: 14, by: (row) => row.first, cell: (row) => <Moment at={row.first} /> },
            { head: "Last", width: 14, by: (row) => row.last, cell: (row) => <Moment at={row.last} /> },
            { head: "Node", width: 11, cell: (row) => visible(row.node_name) },
          ]}
        />
      )}
    </>
  );
}

/** The latest drops that the filters choose, by topic and reason. */
function ByTopic({ asked }: { asked: Record<string, string | undefined> }) {
  const drops = usePolled(
    (abort) => get("/drops", { ...asked, limit: 500 }, {}, abort),
    5000,
    fields.map((name) => asked[name]),
  );
  const groups = new Map<
    string,
    { topic: string; reason: string; count: number; clients: Set<string>; last: string }
  >();
  for (const row of drops.value?.items ?? []) {
    const key = `${row.reason} ${row.topic}`;
    const group = groups.get(key) ?? {
      topic: row.topic,
      reason: row.reason,
      count: 0,
      clients: new Set(),
      last: row.at,
    };
    group.count++;
    group.clients.add(row.client_id);
    if (row.at > group.last) group.last = row.at;
    groups.set(key, group);
  }
  const rows = [...groups.values()].sort((a, b) => b.count - a.count);
  return (
    <>
      <Notices polled={drops} />
      {drops.value && rows.length === 0 ? (
        <Empty>No remembered drop matches.</Empty>
      ) : (
        <>
          <p class="answer">
            Of the latest {plural(drops.value?.items.length ?? 0, "drop")}
            {drops.value?.next ? "; there are more" : ""}.
          </p>
          <Table
            label="Drops by topic"
            open
            rows={rows}
            keyOf={(row) => `${row.reason} ${row.topic}`}
            stale={isStale(drops)}
            columns={[
              { head: "Topic", by: (row) => row.topic, cell: (row) => <TopicLink topic={row.topic} most={60} /> },
              {
                head: "Reason",
                width: 26,
                by: (row) => row.reason,
                cell: (row) => <span title={meaning(row.reason)}>{reasonName(row.reason)}</span>,
              },
              { head: "Dropped", width: 11, figure: true, by: (row) => -row.count, cell: (row) => count(row.count) },
              {
                head: "Clients",
                width: 10,
                figure: true,
                by: (row) => -row.clients.size,
                cell: (row) => count(row.clients.size),
              },
              { head: "Last", width: 14, by: (row) => row.last, cell: (row) => <Moment at={row.last} /> },
            ]}
          />
        </>
      )}
    </>
  );
}

/** Whose messages they are, of the drops that the filters choose. */
function Losers({ rows }: { rows: DropRow[] }) {
  const counts = new Map<string, number>();
  for (const row of rows) counts.set(row.client_id, (counts.get(row.client_id) ?? 0) + 1);
  const most = [...counts].sort((a, b) => b[1] - a[1]);
  return (
    <p class="answer">
      Of the {count(rows.length)} on this page:{" "}
      {most.slice(0, 5).map(([id, n], at) => (
        <span key={id}>
          {at > 0 && ", "}
          <ClientLink id={id} most={24} /> {count(n)}
        </span>
      ))}
      {most.length > 5 && `, ${plural(most.length - 5, "other client")}`}.
    </p>
  );
}

const percent = (part: number, all: number) => `${Math.round((100 * part) / all)} %`;

interface ReasonRow {
  reason: string;
  total: number;
  perSecond: number | null;
}

/** Reasons that have dropped something, most first, with rates from the last two answers. */
function useReasons(answer: object | null): ReasonRow[] {
  const before = useRef<Record<string, unknown> | null>(null);
  const [rows, setRows] = useState<ReasonRow[]>([]);
  useEffect(() => {
    if (!answer) return;
    const now = answer as Record<string, unknown>;
    const old = before.current;
    const seconds = old ? (Number(now.askedAt) - Number(old.askedAt)) / 1000 : 0;
    const counted = Object.entries(now).filter(
      (entry): entry is [string, number] => entry[0] !== "askedAt" && typeof entry[1] === "number" && entry[1] > 0,
    );
    setRows(
      counted
        .map(([reason, total]) => {
          const difference = total - Number(old?.[reason] ?? 0);
          return { reason, total, perSecond: old && seconds > 0 && difference >= 0 ? difference / seconds : null };
        })
        .sort((a, b) => b.total - a.total),
    );
    before.current = now;
  }, [answer]);
  return rows;
}

function Filters({ asked, reasons }: { asked: Record<string, string | undefined>; reasons: string[] }) {
  const [draft, setDraft] = useState(asked);
  useEffect(() => setDraft(asked), [JSON.stringify(asked)]);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  function set(name: string, value: string) {
    const next = { ...draft, [name]: value };
    setDraft(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => replaceParameters(next), 300);
  }
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()}>
      <label class="field">
        Reason
        <select value={draft.reason ?? ""} onChange={(event) => set("reason", event.currentTarget.value)}>
          <option value="">all</option>
          {[...new Set([...reasons, ...(draft.reason ? [draft.reason] : [])])].map((reason) => (
            <option key={reason} value={reason}>
              {visible(reasonName(reason))}
            </option>
          ))}
        </select>
      </label>
      <label class="field">
        Client
        <input
          value={draft.client ?? ""}
          onInput={(event) => set("client", event.currentTarget.value)}
          spellcheck={false}
        />
      </label>
      <label class="field">
        Topic filter
        <input
          value={draft.topic ?? ""}
          onInput={(event) => set("topic", event.currentTarget.value)}
          spellcheck={false}
        />
      </label>
    </form>
  );
}
