// Who wants what?
import { useEffect, useRef, useState } from "preact/hooks";
import type { SubscriptionRow } from "../api/api.types";
import { get, missingOf } from "../api/api";
import { commandOf } from "../words/command";
import { middle, plural, visible } from "../words/format";
import { Pager, usePages } from "../parts/list";
import { Empty, Head, isStale } from "../parts/notices";
import { replaceParameters, route } from "../navigation/route";
import { Table } from "../parts/table";
import { ClientLink, Foreign } from "../parts/text";

export function Subscriptions() {
  const { prefix = "" } = route.value.parameters;
  const [draft, setDraft] = useState(prefix);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => setDraft(prefix), [prefix]);
  const pages = usePages<SubscriptionRow>(
    (after, abort) => get("/subscriptions", { prefix, after, limit: 100 }, {}, abort),
    10_000,
    [prefix],
  );
  const rows = pages.value?.items ?? [];
  function set(value: string) {
    setDraft(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => replaceParameters({ prefix: value }), 200);
  }
  return (
    <>
      <Head
        title="Subscriptions"
        polled={pages}
        request={`/subscriptions?prefix=${encodeURIComponent(prefix)}`}
        command={commandOf("subscriptions")}
      >
        {pages.value &&
          `${plural(rows.length, "subscription")} ${pages.number === 1 && !pages.forward ? "in all" : `on page ${pages.number}`}${prefix ? ` whose filters begin with ${middle(visible(prefix), 60)}` : ""}, by client.`}
      </Head>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label class="field wide">
          Filter begins with
          <input
            value={draft}
            onInput={(event) => set(event.currentTarget.value)}
            spellcheck={false}
            autocomplete="off"
          />
        </label>
      </form>
      {pages.value && rows.length === 0 ? (
        <Empty>
          {missingOf(pages.value).length > 0
            ? "Nothing was found on the nodes that answered."
            : pages.forward
              ? "Nothing on this page; more follow."
              : "No subscription matches."}
        </Empty>
      ) : (
        <Table
          label="Subscriptions"
          open
          rows={rows}
          keyOf={(row) => `${row.client_id} ${row.given_filter}`}
          stale={isStale(pages)}
          columns={[
            { head: "Client", width: 34, cell: (row) => <ClientLink id={row.client_id} most={32} /> },
            { head: "Filter", cell: (row) => <Foreign text={row.filter} most={56} /> },
            {
              head: "Shared group",
              width: 18,
              cell: (row) => (row.shared === null ? "" : <Foreign text={row.shared} most={16} />),
            },
            { head: "QoS", width: 6, figure: true, cell: (row) => row.qos },
            {
              head: "Options",
              width: 26,
              cell: (row) =>
                [
                  row.no_local && "no local",
                  row.retain_as_published && "as published",
                  row.identifier !== null && `id ${row.identifier}`,
                ]
                  .filter(Boolean)
                  .join(", "),
            },
            { head: "Node", width: 11, cell: (row) => visible(row.node_name ?? "") },
          ]}
        />
      )}
      <Pager pages={pages} what="subscription" />
    </>
  );
}
