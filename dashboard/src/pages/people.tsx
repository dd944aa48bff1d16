// Who may look at this cluster and change it: people with passwords, and keys of programs.
import { useState } from "preact/hooks";
import type { KeyRow, PersonRow } from "../api/api.types";
import { get } from "../api/api";
import { AddKey, KeyDeedDialog, type KeyDeed } from "../access/keydialogs";
import { ShownOnce } from "../access/change";
import { AddPerson, PersonDeedDialog, type Made, type PersonDeed } from "../access/persondialogs";
import { hasEnded, inWords } from "../access/peoplewords";
import { isReachable } from "../access/words";
import { clusterNow } from "../api/clock";
import { commandOf } from "../words/command";
import { Action } from "../parts/dialog";
import { middle, unknown, visible } from "../words/format";
import { Empty, Head, Told, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { link } from "../navigation/route";
import { may, me } from "../api/session";
import { accountOpen, askToSignIn } from "../parts/signin";
import { Table } from "../parts/table";
import { Foreign, Moment, State } from "../parts/text";

/** People, and keys, that the page lists at most. */
const most = 500;

export function PeoplePage() {
  return may("administrator") ? <All /> : <ForAdministrators />;
}

function ForAdministrators() {
  const who = me.value;
  return (
    <>
      <Head title="People & keys">
        {who &&
          `Only administrators see who may look at this cluster and change it${who.user || who.key ? `; you are ${who.role === "operator" ? "an operator" : "a viewer"}` : ""}.`}
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
          An administrator can give you another role on this page, or with{" "}
          <code>{commandOf("person set", [who.user], { role: "administrator" })}</code>
        </Empty>
      )}
    </>
  );
}

type Asked =
  | { deed: "add person" }
  | { deed: "add key" }
  | { deed: PersonDeed; person: PersonRow }
  | { deed: KeyDeed; keyRow: KeyRow };

function All() {
  const polled = usePolled(
    async (abort) => {
      const [people, keys] = await Promise.all([
        get("/people", { limit: most }, {}, abort),
        get("/keys", { limit: most }, {}, abort),
      ]);
      return { people: people.items, keys: keys.items, more: people.next !== null || keys.next !== null };
    },
    10_000,
    [],
  );
  const [asked, setAsked] = useState<Asked | null>(null);
  const [told, setTold] = useState<string | null>(null);
  const [made, setMade] = useState<Made | null>(null);
  const now = polled.value;
  const tells = {
    close: () => setAsked(null),
    done: (what: string, made?: Made) => {
      setTold(what);
      setMade(made ?? null);
      polled.again();
    },
  };
  return (
    <>
      <Head title="People & keys" polled={polled} request="/people" command={commandOf("person list")}>
        {now && inWords(now.people, now.keys, clusterNow(), now.more)}
      </Head>
      <Told>{told}</Told>
      {now && (
        <>
          {now.more && (
            <Empty>
              The page lists the first {most} people and the first {most} keys. <code>heraldmq person list</code> and{" "}
              <code>heraldmq key list</code> list all.
            </Empty>
          )}
          <People rows={now.people} stale={isStale(polled)} ask={setAsked} />
          <Keys rows={now.keys} stale={isStale(polled)} ask={setAsked} />
        </>
      )}
      <Dialogs asked={asked} {...tells} />
      {made && <MadeOnce made={made} close={() => setMade(null)} />}
    </>
  );
}

function Dialogs({ asked, ...tells }: { asked: Asked | null; close(): void; done(what: string, made?: Made): void }) {
  if (!asked) return null;
  if ("person" in asked) return <PersonDeedDialog {...asked} {...tells} />;
  if ("keyRow" in asked) return <KeyDeedDialog {...asked} {...tells} />;
  return asked.deed === "add person" ? <AddPerson {...tells} /> : <AddKey {...tells} />;
}

const Source = ({ of, file }: { of: "file" | "store"; file: string }) =>
  of === "file" ? <span title={`in ${file} of the node that serves this page`}>file</span> : <>store</>;
const ofFile = (file: string) => `it is in ${file} of the node that serves this page: change it there`;

function People({ rows, stale, ask }: { rows: PersonRow[]; stale: boolean; ask(asked: Asked): void }) {
  const unless = (row: PersonRow) =>
    row.source === "file"
      ? ofFile("http.userFile")
      : isReachable(row.name)
        ? null
        : "browsers cannot name this person in a path: heraldmq person changes it";
  const deed = (row: PersonRow, what: PersonDeed, says: string) => (
    <Action quiet needs="administrator" unless={unless(row)} onClick={() => ask({ deed: what, person: row })}>
      {says}
    </Action>
  );
  return (
    <section>
      <h2 class="section-title">People</h2>
      <p class="in-place">
        <Action needs="administrator" onClick={() => ask({ deed: "add person" })}>
          Add a person…
        </Action>
      </p>
      {rows.length === 0 ? (
        <Empty>Nobody has a password. People sign in at the dashboard with one; programs use keys.</Empty>
      ) : (
        <Table
          label="People"
          choose="people"
          rows={rows}
          keyOf={(row) => row.name}
          stale={stale}
          columns={[
            {
              head: "Person",
              by: (row) => row.name,
              cell: (row) => (
                <>
                  <Foreign text={row.name} />
                  {row.name === me.value?.user && <span class="soft"> you</span>}
                </>
              ),
            },
            { head: "Role", width: 14, by: (row) => row.role, cell: (row) => row.role },
            {
              head: "Audit",
              width: 8,
              cell: (row) => (row.audits || row.role === "administrator" ? "reads" : unknown),
            },
            {
              head: "Logins",
              width: 10.5,
              by: (row) => String(row.enabled),
              cell: (row) => (row.enabled ? <State is="ok" say="enabled" /> : <State is="refused" say="disabled" />),
            },
            {
              head: "Password",
              width: 14,
              cell: (row) => (!row.has_password ? "none" : row.must_change ? "to be changed" : "set"),
            },
            { head: "Known in", width: 9, cell: (row) => <Source of={row.source} file="http.userFile" /> },
            {
              head: "Note",
              width: 14,
              cell: (row) => <span title={visible(row.note)}>{middle(visible(row.note), 40)}</span>,
            },
            {
              head: "Changes",
              width: 9,
              cell: (row) => (
                <a
                  href={link("audit", { target: row.name, action: "person." })}
                  aria-label={`changes of ${visible(row.name).slice(0, 60)}`}
                >
                  changes
                </a>
              ),
            },
            {
              head: "Actions",
              width: 42,
              figure: true,
              cell: (row) => (
                <span class="in-place end">
                  {deed(row, "change", "Change…")}
                  {row.name === me.value?.user ? (
                    <Action quiet needs="viewer" unless={unless(row)} onClick={() => (accountOpen.value = true)}>
                      Password…
                    </Action>
                  ) : (
                    deed(row, "password", "Password…")
                  )}
                  {row.enabled ? deed(row, "disable", "Disable…") : deed(row, "enable", "Enable…")}
                  {deed(row, "remove", "Remove…")}
                </span>
              ),
            },
          ]}
        />
      )}
    </section>
  );
}

function Keys({ rows, stale, ask }: { rows: KeyRow[]; stale: boolean; ask(asked: Asked): void }) {
  const deed = (row: KeyRow, what: KeyDeed, says: string) => (
    <Action
      quiet
      needs="administrator"
      unless={row.source === "file" ? ofFile("http.keyFile") : null}
      onClick={() => ask({ deed: what, keyRow: row })}
    >
      {says}
    </Action>
  );
  return (
    <section>
      <h2 class="section-title">Keys</h2>
      <p class="in-place">
        <Action needs="administrator" onClick={() => ask({ deed: "add key" })}>
          Add a key…
        </Action>{" "}
        <span class="soft">
          The key in <code>http.tokenFile</code>, if there is one, is not listed.
        </span>
      </p>
      {rows.length === 0 ? (
        <Empty>
          There are no keys. Programs such as Prometheus, Grafana and <code>heraldmq</code> use the HTTP API with keys.
        </Empty>
      ) : (
        <Table
          label="Keys"
          choose="keys"
          rows={rows}
          keyOf={(row) => row.id}
          stale={stale}
          columns={[
            {
              head: "Name",
              by: (row) => row.name,
              cell: (row) => (
                <span class="foreign" title={visible(row.name)}>
                  {middle(visible(row.name), 36)}
                </span>
              ),
            },
            { head: "Key", width: 11, cell: (row) => <Foreign text={row.id} /> },
            { head: "Role", width: 14, by: (row) => row.role, cell: (row) => row.role },
            {
              head: "Audit",
              width: 8,
              cell: (row) => (row.audits || row.role === "administrator" ? "reads" : unknown),
            },
            { head: "Made", width: 14, by: (row) => row.created_at, cell: (row) => <Moment at={row.created_at} /> },
            {
              head: "Ends",
              width: 14,
              by: (row) => row.ends_at,
              cell: (row) =>
                row.ends_at === null ? (
                  "never"
                ) : hasEnded(row, clusterNow()) ? (
                  <State is="refused" say="has ended" />
                ) : (
                  <Moment at={row.ends_at} />
                ),
            },
            {
              head: "Old secret until",
              width: 16,
              cell: (row) =>
                row.old_secret_ends_at !== null && Date.parse(row.old_secret_ends_at) > clusterNow() ? (
                  <Moment at={row.old_secret_ends_at} />
                ) : (
                  unknown
                ),
            },
            { head: "Known in", width: 9, cell: (row) => <Source of={row.source} file="http.keyFile" /> },
            {
              head: "Changes",
              width: 9,
              cell: (row) => (
                <a
                  href={link("audit", { target: row.id, action: "key." })}
                  aria-label={`changes of ${visible(row.name).slice(0, 60)}`}
                >
                  changes
                </a>
              ),
            },
            {
              head: "Actions",
              width: 22,
              figure: true,
              cell: (row) => (
                <span class="in-place end">
                  {deed(row, "rotate", "Rotate…")}
                  {deed(row, "remove", "Remove…")}
                </span>
              ),
            },
          ]}
        />
      )}
    </section>
  );
}

function MadeOnce({ made: { name, secret, kind }, close }: { made: Made; close(): void }) {
  return (
    <ShownOnce
      title={`The ${kind} ${kind === "key" ? "" : "of "}${middle(visible(name), 60)}`}
      secret={secret}
      close={close}
    >
      <p>
        {kind === "key"
          ? "Programs send it as Authorization: Bearer, and heraldmq reads it from the file that --key-file names."
          : "Give it to the person, who signs in with it."}{" "}
        It is not shown again: the broker keeps only a hash. If it is lost, generate another one.
      </p>
    </ShownOnce>
  );
}
