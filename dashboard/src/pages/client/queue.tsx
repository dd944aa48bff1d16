// What waits for a client.
import { fitsPath, get, missingOf, post } from "../../api/api";
import type { QueuedMessage } from "../../api/api.types";
import { may } from "../../api/session";
import { EmptyQueue } from "../../parts/actions";
import { Action, Confirm } from "../../parts/dialog";
import { Pager, usePages } from "../../parts/list";
import { Empty, Failed, Partial } from "../../parts/notices";
import { Table } from "../../parts/table";
import { Foreign, Moment, TopicLink } from "../../parts/text";
import { bytes, middle, visible } from "../../words/format";
import { useState } from "preact/hooks";

export function Queue({ id, waiting }: { id: string; waiting: number }) {
  const payloads = may("operator");
  const pages = usePages<QueuedMessage>(
    (after, abort) =>
      payloads
        ? post("/queue", { client_id: id, after: after ?? null, limit: 50 }, {}, abort)
        : get("/sessions/{client_id}/queue", { after, limit: 50 }, { client_id: id }, abort),
    10_000,
    [id, payloads],
  );
  const [shown, setShown] = useState<QueuedMessage | null>(null);
  const [asked, setAsked] = useState(false);
  const [done, setDone] = useState<string | null>(null);
  const rows = pages.value?.items ?? [];
  if (!payloads && !fitsPath(id))
    return <Empty>Reading this queue needs the role operator: the client identifier does not fit into a URL.</Empty>;
  return (
    <>
      {pages.problem ? (
        <Failed problem={pages.problem} again={pages.again} />
      ) : (
        <Partial missing={missingOf(pages.value)} />
      )}
      {(waiting > 0 || rows.length > 0) && (
        <p class="in-place">
          <Action needs="operator" onClick={() => setAsked(true)}>
            Empty queue…
          </Action>
        </p>
      )}
      {done && <p role="status">{done}</p>}
      {asked && (
        <EmptyQueue
          id={id}
          waiting={waiting}
          close={() => setAsked(false)}
          done={(what) => {
            setDone(what);
            pages.again();
          }}
        />
      )}
      {pages.value &&
        (rows.length === 0 ? (
          <Empty>The queue is empty.</Empty>
        ) : (
          <Table
            label="Queued messages, the oldest first"
            open
            rows={rows}
            keyOf={(row) => row.sequence}
            columns={[
              { head: "Sequence", width: 13, figure: true, cell: (row) => row.sequence },
              { head: "Topic", width: 40, cell: (row) => <TopicLink topic={row.topic} /> },
              { head: "QoS", width: 6, figure: true, cell: (row) => row.qos },
              { head: "Size", width: 10, figure: true, cell: (row) => bytes(row.payload_bytes) },
              {
                head: "Expires",
                width: 14,
                cell: (row) => (row.expires_at ? <Moment at={row.expires_at} /> : "never"),
              },
              {
                head: "Payload",
                cell: (row) =>
                  row.payload === null ? (
                    <span class="soft">{payloads ? "too large" : "needs operator"}</span>
                  ) : (
                    <button type="button" class="quiet foreign" onClick={() => setShown(row)}>
                      {preview(row)}
                    </button>
                  ),
              },
            ]}
          />
        ))}
      <Pager pages={pages} what="message" />
      {shown && (
        <Confirm
          title="Payload"
          deed="Copy"
          act={() => navigator.clipboard.writeText(shown.payload ?? "")}
          close={() => setShown(null)}
        >
          <p>
            <Foreign text={shown.topic} most={80} />, {bytes(shown.payload_bytes)},{" "}
            {shown.encoding === "utf8" ? "text" : "base64"}
          </p>
          <div class="scroll" tabIndex={0} role="region" aria-label="Payload">
            <code class="foreign">{visible((shown.payload ?? "").slice(0, 4096))}</code>
          </div>
        </Confirm>
      )}
    </>
  );
}

const preview = (row: QueuedMessage) =>
  row.payload === ""
    ? "(empty)"
    : `${row.encoding === "utf8" ? "" : "base64 "}${middle(visible((row.payload ?? "").slice(0, 400)), 60)}`;
