// Which client do you mean?
import { useEffect, useRef, useState } from "preact/hooks";
import type { ClientRow } from "../api/api.types";
import { Disconnect, DisconnectAll } from "../parts/actions";
import { get, missingOf } from "../api/api";
import { commandOf } from "../words/command";
import { Action } from "../parts/dialog";
import { count, plural, visible, words } from "../words/format";
import { heldBecause, share } from "../api/held";
import { Pager, usePages } from "../parts/list";
import { Empty, Head, Told, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { replaceParameters, route } from "../navigation/route";
import { may } from "../api/session";
import { Table } from "../parts/table";
import { Ago, ClientLink, State } from "../parts/text";

const filters = ["prefix", "state", "node", "user", "address", "order"] as const;

export function Clients() {
  const parameters = route.value.parameters;
  const asked = Object.fromEntries(filters.map((name) => [name, parameters[name]]));
  const pages = usePages<ClientRow>(
    (after, abort) => get("/clients", { ...asked, limit: 100, after }, {}, abort),
    10_000,
    filters.map((name) => asked[name]),
  );
  const [leaving, setLeaving] = useState<string | null>(null);
  const [done, setDone] = useState<string | null>(null);
  const [selected, setSelected] = useState<readonly string[]>([]);
  const [leavingAll, setLeavingAll] = useState(false);
  const rows = pages.value?.items ?? [];
  const chosen = rows.filter((row) => selected.includes(row.client_id)).map((row) => row.client_id);
  const select = (id: string, is: boolean) => setSelected(is ? [...chosen, id] : chosen.filter((one) => one !== id));
  const connected = rows.filter((row) => row.state === "connected").map((row) => row.client_id);
  const request =
    "/clients?" +
    new URLSearchParams(
      Object.entries({ ...asked, limit: "100" }).filter((entry): entry is [string, string] => !!entry[1]),
    );
  return (
    <>
      <Head
        title="Clients"
        polled={pages}
        request={request}
        command={
          commandOf("clients", [asked.prefix], { state: asked.state }) + (asked.order === "held" ? " --held" : "")
        }
      >
        {pages.value && sentence(rows, asked, pages.number, pages.forward !== null)}
      </Head>
      <Filters asked={asked} />
      <Told>{done}</Told>
      {may("operator") && connected.length > 0 && (
        <p class="in-place">
          <label class="check">
            <input
              type="checkbox"
              checked={connected.length > 0 && connected.every((id) => chosen.includes(id))}
              onChange={(event) => setSelected(event.currentTarget.checked ? connected : [])}
            />{" "}
            select all that are connected on this page
          </label>
          {chosen.length > 0 && (
            <Action
              needs="operator"
              onClick={() => setLeavingAll(true)}
            >{`Disconnect ${plural(chosen.length, "client")}…`}</Action>
          )}
        </p>
      )}
      {pages.value && rows.length === 0 ? (
        <Empty>
          {missingOf(pages.value).length > 0
            ? "No client matches on the nodes that answered."
            : asked.order === "held"
              ? "No client has waited within the last minute."
              : "No client matches. Clear a filter or shorten the prefix: clients are found by the beginning of their identifier."}
        </Empty>
      ) : (
        <Table
          label="Clients"
          open
          choose="clients"
          rows={rows}
          keyOf={(row) => row.client_id}
          stale={isStale(pages)}
          columns={[
            {
              head: "Client",
              by: (row) => row.client_id,
              cell: (row) => (
                <span class="in-place">
                  {may("operator") && (
                    <input
                      type="checkbox"
                      aria-label={`select ${visible(row.client_id).slice(0, 60)}`}
                      disabled={row.state !== "connected"}
                      checked={chosen.includes(row.client_id)}
                      onChange={(event) => select(row.client_id, event.currentTarget.checked)}
                    />
                  )}
                  <ClientLink id={row.client_id} />
                </span>
              ),
            },
            { head: "State", width: 12, by: (row) => row.state, cell: (row) => <State is={row.state} /> },
            {
              head: "Node",
              width: 8,
              by: (row) => row.node_name,
              cell: (row) => (row.node_name ? visible(row.node_name) : ""),
            },
            {
              head: "For",
              width: 11,
              figure: true,
              by: (row) => (row.since ? -Date.parse(row.since) : null),
              cell: (row) => <Ago at={row.since} />,
            },
            {
              head: "User",
              width: 11,
              by: (row) => row.user,
              cell: (row) => (row.user === null ? <span class="soft">anonymous</span> : visible(row.user)),
            },
            { head: "Address", width: 17, by: (row) => row.address, cell: (row) => row.address ?? "" },
            { head: "Session", width: 8, cell: (row) => (row.durable ? "durable" : "clean") },
            {
              head: "Queued",
              width: 8,
              figure: true,
              by: (row) => row.queue_messages,
              cell: (row) => count(row.queue_messages),
            },
            {
              head: "Held back",
              width: 10,
              figure: true,
              by: (row) => row.held?.share_percent,
              cell: (row) =>
                row.held && (
                  <span title={`${words(row.held.reason)}: ${heldBecause(row.held.reason)}`}>{share(row.held)}</span>
                ),
            },
            {
              head: "Actions",
              width: 13.5,
              figure: true,
              cell: (row) =>
                row.state === "connected" && (
                  <Action quiet needs="operator" onClick={() => setLeaving(row.client_id)}>
                    Disconnect…
                  </Action>
                ),
            },
          ]}
        />
      )}
      <Pager pages={pages} what="client" />
      {leavingAll && (
        <DisconnectAll
          ids={chosen}
          close={() => setLeavingAll(false)}
          done={(what) => {
            setDone(what);
            setSelected([]);
            pages.again();
          }}
        />
      )}
      {leaving !== null && (
        <Disconnect
          id={leaving}
          close={() => setLeaving(null)}
          done={(what) => {
            setDone(what);
            pages.again();
          }}
        />
      )}
    </>
  );
}

function sentence(rows: ClientRow[], asked: Record<string, string | undefined>, page: number, more: boolean) {
  const filter = asked.prefix ? ` whose identifiers begin with ${visible(asked.prefix).slice(0, 60)}` : "";
  const away = rows.filter((row) => row.state === "away").length;
  const all = page === 1 && !more;
  return `${all ? plural(rows.length, "client") : `${plural(rows.length, "client")} on page ${page}`}${filter}, ${count(away)} of them away.`;
}

function Filters({ asked }: { asked: Record<string, string | undefined> }) {
  const [draft, setDraft] = useState(asked);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const nodes = usePolled((abort) => get("/nodes", {}, {}, abort), 30_000, []);
  useEffect(() => setDraft(asked), [JSON.stringify(asked)]);
  function set(name: string, value: string) {
    const next = { ...draft, [name]: value };
    setDraft(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => replaceParameters(next), 200);
  }
  const text = (name: string, label: string, hint = "") => (
    <label class="field">
      {label}
      <input
        value={draft[name] ?? ""}
        placeholder={hint}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => set(name, event.currentTarget.value)}
      />
    </label>
  );
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()}>
      {text("prefix", "Identifier begins with")}
      <label class="field">
        State
        <select value={draft.state ?? ""} onChange={(event) => set("state", event.currentTarget.value)}>
          <option value="">all</option>
          {["connected", "away"].map((state) => (
            <option key={state} value={state}>
              {state}
            </option>
          ))}
        </select>
      </label>
      <label class="field">
        Node
        <select value={draft.node ?? ""} onChange={(event) => set("node", event.currentTarget.value)}>
          <option value="">all</option>
          {nodes.value?.items.map((node) => (
            <option key={node.node} value={node.node}>
              {visible(node.node_name)}
            </option>
          ))}
        </select>
      </label>
      <label class="field">
        Order
        <select value={draft.order ?? ""} onChange={(event) => set("order", event.currentTarget.value)}>
          <option value="">identifier</option>
          <option value="held">time held back in the last minute</option>
        </select>
      </label>
      {text("user", "User")}
      {text("address", "Address")}
    </form>
  );
}
