// What was dropped for a client.
import { get } from "../../api/api";
import type { Client, DropRow } from "../../api/api.types";
import { DropTable } from "../../parts/drops";
import { Pager, usePages } from "../../parts/list";
import { Empty, Notices } from "../../parts/notices";
import { visible, words } from "../../words/format";

export const longest = 2000;

export function Drops({ id, client }: { id: string; client: Client }) {
  const pages = usePages<DropRow>((after, abort) => get("/drops", { client: id, after, limit: 50 }, {}, abort), 5000, [
    id,
  ]);
  if (id.length > longest)
    return (
      <Empty>
        {client.recent_drops.length === 0
          ? "The nodes remember no dropped message of this client."
          : client.recent_drops.map((drop) => `${words(drop.reason)}: ${visible(drop.topic)}`).join("; ")}
      </Empty>
    );
  return (
    <>
      <Notices polled={pages} />
      {pages.value &&
        (pages.value.items.length === 0 ? (
          <Empty>The nodes remember no dropped message of this client.</Empty>
        ) : (
          <DropTable rows={pages.value.items} of="client" />
        ))}
      <Pager pages={pages} what="drop" />
    </>
  );
}
