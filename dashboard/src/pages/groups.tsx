// Which shared groups are there, and has each of them members that are connected?
import type { SharedGroupRow } from "../api.types";
import { get, missingOf } from "../api";
import { count, plural } from "../format";
import { Pager, usePages } from "../list";
import { Empty, Head, isStale } from "../notices";
import { Table } from "../table";
import { Foreign, State, TopicLink } from "../text";

export function Groups() {
  const pages = usePages<SharedGroupRow>((after, abort) => get("/shared-groups", { after, limit: 100 }, {}, abort), 5000, []);
  const rows = pages.value?.items ?? [];
  const idle = rows.filter((row) => row.online === 0).length;
  return (
    <>
      <Head title="Shared groups" polled={pages} request="/shared-groups">
        {pages.value && rows.length > 0 && `${plural(rows.length, "shared group")}${pages.forward ? " on this page" : ""}; ${idle === 0 ? "each has a connected member" : `${count(idle)} without a connected member`}.`}
      </Head>
      {pages.value && rows.length === 0
        ? <Empty>{missingOf(pages.value).length > 0 ? "Nothing was found on the nodes that answered." : "Nobody has subscribed to $share/…, so there is no shared group."}</Empty>
        : <Table label="Shared groups" open rows={rows} keyOf={(row) => row.given_filter} stale={isStale(pages)} columns={[
          { head: "Group", width: 30, cell: (row) => <Foreign text={row.group} most={28} /> },
          { head: "Filter", cell: (row) => (/[+#]/.test(row.filter) ? <Foreign text={row.filter} most={60} /> : <TopicLink topic={row.filter} />) },
          { head: "Members", width: 11, figure: true, cell: (row) => count(row.members) },
          { head: "Connected", width: 12, figure: true, cell: (row) => count(row.online) },
          { head: "State", width: 18, cell: (row) => (row.online > 0 ? <State is="ok" say="served" /> : <State is="silent" say="nobody connected" />) },
        ]} />}
      <Pager pages={pages} what="group" />
    </>
  );
}
