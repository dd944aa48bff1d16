// Does each shared group keep up, and which of its members does not?
import type { GroupMember, SharedGroupRow } from "../api/api.types";
import { get, missingOf } from "../api/api";
import { commandOf } from "../words/command";
import { count, middle, plural, unknown, visible } from "../words/format";
import { Pager, usePages } from "../parts/list";
import { Empty, Head, Notices, isStale } from "../parts/notices";
import { link, route } from "../navigation/route";
import { Table } from "../parts/table";
import { ClientLink, Foreign, State, TopicLink } from "../parts/text";

export function Groups() {
  const pages = usePages<SharedGroupRow>(
    (after, abort) => get("/shared-groups", { after, limit: 100 }, {}, abort),
    5000,
    [],
  );
  const rows = pages.value?.items ?? [];
  const chosen = route.value.parameters.group;
  return (
    <>
      <Head title="Shared groups" polled={pages} request="/shared-groups" command={commandOf("groups")}>
        {pages.value && rows.length > 0 && sentence(rows, pages.number > 1 || pages.forward !== null)}
      </Head>
      {pages.value && rows.length === 0 ? (
        <Empty>
          {missingOf(pages.value).length > 0
            ? "Nothing was found on the nodes that answered."
            : "No client subscribes to $share/…, so there is no shared group."}
        </Empty>
      ) : (
        <Table
          label="Shared groups"
          open
          rows={rows}
          keyOf={(row) => row.given_filter}
          stale={isStale(pages)}
          tone={(row) => (row.given_filter === chosen ? "chosen" : "")}
          columns={[
            {
              head: "Group",
              width: 30,
              cell: (row) => (
                <Foreign text={row.group} most={28} href={link("shared-groups", { group: row.given_filter })} />
              ),
            },
            {
              head: "Filter",
              cell: (row) =>
                /[+#]/.test(row.filter) ? <Foreign text={row.filter} most={50} /> : <TopicLink topic={row.filter} />,
            },
            { head: "Connected", width: 12, figure: true, by: (row) => row.online, cell: (row) => count(row.online) },
            { head: "Away", width: 9, figure: true, by: away, cell: (row) => count(away(row)) },
            { head: "Lag", width: 11, figure: true, by: (row) => row.lag, cell: (row) => count(row.lag) },
            {
              head: "State",
              width: 18,
              cell: (row) =>
                row.online > 0 ? <State is="ok" say="served" /> : <State is="silent" say="nobody connected" />,
            },
          ]}
        />
      )}
      <Pager pages={pages} what="group" />
      {rows.length > 0 && (
        <p class="soft small">
          Lag counts the messages that members have not acknowledged, including those of their other subscriptions.
        </p>
      )}
      {chosen !== undefined && <Members group={chosen} />}
    </>
  );
}

const away = (row: SharedGroupRow) => Math.max(0, row.members - row.online);

function sentence(rows: SharedGroupRow[], isPart: boolean) {
  const idle = rows.filter((row) => row.online === 0).length;
  const [behind] = [...rows].sort((a, b) => (b.lag ?? 0) - (a.lag ?? 0));
  return (
    <>
      {plural(rows.length, "shared group")}
      {isPart ? " on this page" : ""};{" "}
      {idle === 0 ? "each has a connected member" : `${count(idle)} without a connected member`}
      {(behind?.lag ?? 0) > 0 && (
        <>
          ; <Foreign text={behind!.group} most={28} href={link("shared-groups", { group: behind!.given_filter })} /> has
          the largest lag, {plural(behind!.lag!, "message")}
        </>
      )}
      .
    </>
  );
}

/** Durable sessions first, by client identifier. */
function Members({ group }: { group: string }) {
  const pages = usePages<GroupMember>(
    (after, abort) => get("/shared-groups/members", { filter: group, after, limit: 100 }, {}, abort),
    5000,
    [group],
  );
  const rows = pages.value?.items ?? [];
  const title = `Members of ${middle(visible(group), 80)}`;
  return (
    <section>
      <h2 class="section-title">{title}</h2>
      <Notices polled={pages} />
      {pages.value && rows.length === 0 && missingOf(pages.value).length > 0 && (
        <Empty>Nothing was found on the nodes that answered.</Empty>
      )}
      {rows.length > 0 && (
        <Table
          label={title}
          open
          rows={rows}
          keyOf={(row) => `${row.client_id} ${row.node}`}
          stale={isStale(pages)}
          columns={[
            {
              head: "Client",
              cell: (row) => <ClientLink id={row.client_id} most={48} tab={row.durable ? "queue" : undefined} />,
            },
            { head: "Session", width: 12, cell: (row) => (row.durable ? "durable" : "not durable") },
            { head: "State", width: 14, cell: (row) => (row.state === null ? unknown : <State is={row.state} />) },
            {
              head: "Node",
              width: 12,
              cell: (row) =>
                row.node === null ? (
                  ""
                ) : (
                  <a href={link("nodes", { node: row.node })}>{visible(row.node_name ?? row.node)}</a>
                ),
            },
            { head: "Waiting", width: 11, figure: true, by: (row) => row.waiting, cell: (row) => count(row.waiting) },
            {
              head: "In flight",
              width: 11,
              figure: true,
              by: (row) => row.in_flight,
              cell: (row) => count(row.in_flight),
            },
          ]}
        />
      )}
      <Pager pages={pages} what="member" />
    </section>
  );
}
