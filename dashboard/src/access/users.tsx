// The users that MQTT clients log in as.
import { useEffect, useRef, useState } from "preact/hooks";
import type { AccessUser, Proof } from "../api/api.types";
import { get } from "../api/api";
import { commandOf } from "../words/command";
import { Action } from "../parts/dialog";
import { count, middle, visible } from "../words/format";
import { Pager, usePages } from "../parts/list";
import { Empty, Notices, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { link, replaceParameters, route } from "../navigation/route";
import { Table } from "../parts/table";
import { Foreign, Moment, State } from "../parts/text";
import { allGroups } from "./groups";
import { AddUser, UserDeedDialog, unlessReachable, type UserDeed } from "./userdialogs";

export const filters = ["prefix", "group", "enabled"] as const;
const proofs: Record<Proof, string> = { password: "password", scram: "SCRAM keys", secret: "secret" };
export const proofsOf = (user: AccessUser): string =>
  [...new Set(user.proofs.map((proof) => proofs[proof]))].join(", ");

type Asked = { deed: "add" } | { deed: UserDeed; user: AccessUser };

export function UserList({
  done,
  isEmpty,
}: {
  done(what: string, secret?: { name: string; secret: string }): void;
  isEmpty: boolean;
}) {
  const parameters = route.value.parameters;
  const asked = Object.fromEntries(filters.map((name) => [name, parameters[name]]));
  const pages = usePages<AccessUser>(
    (after, abort) => get("/users", { ...asked, limit: 100, after }, {}, abort),
    10_000,
    filters.map((name) => asked[name]),
  );
  const groups = usePolled(allGroups, 30_000, []);
  const [open, setOpen] = useState<Asked | null>(null);
  const rows = pages.value?.items ?? [];
  const told = {
    groups: groups.value ?? [],
    close: () => setOpen(null),
    done: (what: string, secret?: { name: string; secret: string }) => {
      done(what, secret);
      pages.again();
    },
  };
  const isFiltered = filters.some((name) => asked[name]);
  return (
    <>
      <Notices polled={pages} />
      {(isFiltered || !isEmpty) && <Filters asked={asked} groups={told.groups.map((group) => group.name)} />}
      <p class="in-place">
        <Action needs="administrator" onClick={() => setOpen({ deed: "add" })}>
          Add a user…
        </Action>
      </p>
      {pages.value && rows.length === 0 ? (
        isFiltered || !isEmpty ? (
          <Empty>
            {pages.forward
              ? "No user on this page matches; more follow."
              : "No user matches. Clear a filter or shorten the prefix: users are found by the beginning of their names."}
          </Empty>
        ) : (
          <First />
        )
      ) : (
        <Table
          label="Users"
          open
          choose="users"
          rows={rows}
          keyOf={(row) => row.name}
          stale={isStale(pages)}
          columns={[
            {
              head: "User",
              by: (row) => row.name,
              cell: (row) => <Foreign text={row.name} href={link("user", { id: row.name })} />,
            },
            { head: "Logins", width: 10.5, by: (row) => String(row.enabled), cell: (row) => <Enabled user={row} /> },
            { head: "Proof", width: 9.5, cell: proofsOf },
            {
              head: "Groups",
              width: 14,
              cell: (row) => (
                <span title={visible(row.groups.join(", "))}>{middle(visible(row.groups.join(", ")), 60)}</span>
              ),
            },
            {
              head: "Rules",
              width: 10,
              figure: true,
              by: (row) => row.rules.length,
              cell: (row) => (row.superuser ? "superuser" : count(row.rules.length)),
            },
            { head: "Class", width: 9, cell: (row) => visible(row.class ?? "") },
            {
              head: "Ends",
              width: 12,
              by: (row) => row.ends_at,
              cell: (row) => (row.ends_at === null ? "never" : <Moment at={row.ends_at} />),
            },
            {
              head: "Note",
              width: 12,
              cell: (row) => <span title={visible(row.note)}>{middle(visible(row.note), 30)}</span>,
            },
            {
              head: "Clients",
              width: 8,
              cell: (row) => (
                <a
                  href={link("clients", { user: row.name, state: "connected" })}
                  aria-label={`clients of ${visible(row.name).slice(0, 60)}`}
                >
                  clients
                </a>
              ),
            },
            {
              head: "Actions",
              width: 11.5,
              figure: true,
              cell: (row) => (
                <Action
                  quiet
                  needs="administrator"
                  unless={unlessReachable(row.name)}
                  onClick={() => setOpen({ deed: row.enabled ? "disable" : "enable", user: row })}
                >
                  {row.enabled ? "Disable…" : "Enable…"}
                </Action>
              ),
            },
          ]}
        />
      )}
      <Pager pages={pages} what="user" />
      {open?.deed === "add" && <AddUser isFirst={isEmpty} {...told} />}
      {open && open.deed !== "add" && <UserDeedDialog deed={open.deed} user={open.user} {...told} />}
    </>
  );
}

export const Enabled = ({ user }: { user: AccessUser }) =>
  user.enabled ? <State is="ok" say="enabled" /> : <State is="refused" say="disabled" />;

/** No user was ever added. */
const First = () => (
  <div class="empty">
    <p>
      There are no users. If <code>authentication.chain</code> is not set, the broker lets clients in without a password
      until the first user is added; from then on it refuses clients without a user, unless <code>allowAnonymous</code>{" "}
      is on.
    </p>
    <p>
      To add the first user, choose <em>Add a user…</em>, or run <code>{commandOf("user add", ["ann"])}</code>
    </p>
  </div>
);

function Filters({ asked, groups }: { asked: Record<string, string | undefined>; groups: string[] }) {
  const [draft, setDraft] = useState(asked);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => setDraft(asked), [JSON.stringify(asked)]);
  useEffect(() => () => clearTimeout(timer.current), []);
  function set(name: string, value: string) {
    const next = { ...draft, [name]: value };
    setDraft(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => replaceParameters(next), 200);
  }
  const names = [...new Set([...groups, ...(asked.group ? [asked.group] : [])])].sort();
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()}>
      <label class="field">
        Name begins with
        <input
          value={draft.prefix ?? ""}
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => set("prefix", event.currentTarget.value)}
        />
      </label>
      <label class="field">
        Group
        <select value={draft.group ?? ""} onChange={(event) => set("group", event.currentTarget.value)}>
          <option value="">all</option>
          {names.map((name) => (
            <option key={name} value={name}>
              {visible(name)}
            </option>
          ))}
        </select>
      </label>
      <label class="field">
        Logins
        <select value={draft.enabled ?? ""} onChange={(event) => set("enabled", event.currentTarget.value)}>
          <option value="">all</option>
          <option value="true">enabled</option>
          <option value="false">disabled</option>
        </select>
      </label>
    </form>
  );
}
