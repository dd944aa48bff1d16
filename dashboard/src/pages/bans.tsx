// Who is out?
import { useState } from "preact/hooks";
import type { Ban } from "../api/api.types";
import { get, post, problemOf, remove, type Problem } from "../api/api";
import { commandOf } from "../words/command";
import { Action, Confirm } from "../parts/dialog";
import { middle, plural, visible } from "../words/format";
import { Pager, usePages } from "../parts/list";
import { Empty, Failed, Head, isStale } from "../parts/notices";
import { RefusedLogins } from "../parts/refused";
import { Table } from "../parts/table";
import { ClientLink, Foreign, Moment } from "../parts/text";

export function Bans() {
  const bans = usePages<Ban>((after, abort) => get("/bans", { after, limit: 100 }, {}, abort), 10_000, []);
  const [asked, setAsked] = useState<number | null>(null);
  const [adding, setAdding] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const rows = bans.value?.items ?? [];
  async function lift(id: number) {
    setAsked(null);
    try {
      await remove("/bans/{id}", {}, { id: String(id) });
      setProblem(null);
      bans.again();
    } catch (error) {
      setProblem(problemOf(error));
    }
  }
  return (
    <>
      <Head
        title="Bans"
        polled={bans}
        request="/bans"
        command={commandOf("ban list")}
        actions={
          <Action needs="operator" onClick={() => setAdding(true)}>
            Ban…
          </Action>
        }
      >
        {bans.value &&
          (rows.length === 0
            ? "Nobody is banned."
            : bans.forward || bans.back
              ? `${plural(rows.length, "ban")} on this page.`
              : `${plural(rows.length, "ban is", "bans are")} in force.`)}
      </Head>
      {problem && <Failed problem={problem} />}
      {bans.value && rows.length === 0 ? (
        <Empty>
          A ban refuses the connections of a client identifier, a user or an address. The broker also bans clients
          automatically if the settings in <code>abuse</code> enable it.
        </Empty>
      ) : (
        <Table
          label="Bans"
          rows={rows}
          keyOf={(row) => row.id}
          stale={isStale(bans)}
          columns={[
            { head: "Who", width: 30, cell: subject },
            {
              head: "Kind",
              width: 10,
              cell: (row) => (row.client != null ? "client" : row.user != null ? "user" : "address"),
            },
            {
              head: "Reason",
              cell: (row) => <span title={visible(row.reason)}>{middle(visible(row.reason), 60)}</span>,
            },
            { head: "Since", width: 14, cell: (row) => <Moment at={row.created} /> },
            {
              head: "Until",
              width: 14,
              cell: (row) => (row.expires == null ? "it is removed" : <Moment at={row.expires} />),
            },
            {
              head: "Actions",
              width: 24,
              figure: true,
              cell: (row) =>
                asked === row.id ? (
                  <span class="in-place end">
                    <button type="button" class="primary" onClick={() => void lift(row.id)}>
                      Remove the ban
                    </button>
                    <button type="button" onClick={() => setAsked(null)}>
                      Cancel
                    </button>
                  </span>
                ) : (
                  <Action needs="operator" onClick={() => setAsked(row.id)}>
                    Remove
                  </Action>
                ),
            },
          ]}
        />
      )}
      <Pager pages={bans} what="ban" />
      <RefusedLogins />
      {adding && <Add close={() => setAdding(false)} done={bans.again} />}
    </>
  );
}

const subject = (row: Ban) =>
  row.client != null ? <ClientLink id={row.client} /> : <Foreign text={row.user ?? row.address ?? ""} />;

function Add({ close, done }: { close(): void; done(): void }) {
  const [kind, setKind] = useState<"client" | "user" | "address">("client");
  const [who, setWho] = useState("");
  const [seconds, setSeconds] = useState("3600");
  const [reason, setReason] = useState("");
  async function act() {
    await post("/bans", { [kind]: who, seconds: seconds === "" ? null : Number(seconds), reason });
    done();
  }
  return (
    <Confirm title="Ban" deed={`Ban the ${kind}`} danger disabled={who === ""} act={act} close={close}>
      <p>Matching clients are disconnected and cannot reconnect until the ban ends. Their sessions are kept.</p>
      <label class="field">
        Kind
        <select value={kind} onChange={(event) => setKind(event.currentTarget.value as typeof kind)}>
          {["client", "user", "address"].map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <label class="field">
        Who
        <input value={who} onInput={(event) => setWho(event.currentTarget.value)} spellcheck={false} />
      </label>
      <label class="field">
        For
        <select value={seconds} onChange={(event) => setSeconds(event.currentTarget.value)}>
          <option value="600">10 minutes</option>
          <option value="3600">1 hour</option>
          <option value="86400">1 day</option>
          <option value="">until it is removed</option>
        </select>
      </label>
      <label class="field">
        Reason
        <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
    </Confirm>
  );
}
