// Groups of users: rules that several users have.
import { useState } from "preact/hooks";
import type { AccessGroup } from "../api/api.types";
import { fill, get, type Problem } from "../api/api";
import { commandOf } from "../words/command";
import { Action } from "../parts/dialog";
import { count, middle, visible } from "../words/format";
import { Pager, usePages } from "../parts/list";
import { Empty, Notices, isStale } from "../parts/notices";
import { link } from "../navigation/route";
import { Table } from "../parts/table";
import { Foreign } from "../parts/text";
import { Change, useFirst, type Plan } from "./change";
import { Numbered } from "./numbered";
import {
  addGroup,
  changes,
  etag,
  groupFields,
  isReachable,
  linesOf,
  mistakesOf,
  newGroup,
  setGroup,
  type GroupFields,
} from "./words";

const short = (name: string) => middle(visible(name), 40);
const pathOf = (name: string) => fill("/groups/{name}", {}, { name });
const read = (name: string) => get("/groups/{name}", {}, { name });
const unreachable = (name: string) =>
  isReachable(name) ? null : "browsers cannot name this group in a path: heraldmq user-group changes it";

/** The groups that a form offers: the first 500. */
export const allGroups = (abort?: AbortSignal): Promise<AccessGroup[]> =>
  get("/groups", { limit: 500 }, {}, abort).then((page) => page.items);

type Asked = { deed: "add" } | { deed: "change" | "remove"; group: AccessGroup };

export function GroupList({ done, isEmpty }: { done(what: string): void; isEmpty: boolean }) {
  const [asked, setAsked] = useState<Asked | null>(null);
  const pages = usePages<AccessGroup>((after, abort) => get("/groups", { after, limit: 100 }, {}, abort), 10_000, []);
  const rows = pages.value?.items ?? [];
  const told = {
    close: () => setAsked(null),
    done: (what: string) => {
      done(what);
      pages.again();
    },
  };
  return (
    <>
      <Notices polled={pages} />
      <p class="in-place">
        <Action needs="administrator" onClick={() => setAsked({ deed: "add" })}>
          Add a group…
        </Action>
      </p>
      {pages.value && rows.length === 0 ? (
        <Empty>
          {isEmpty ? "There are no groups. A group has rules that all users in it have." : "No group is on this page."}
        </Empty>
      ) : (
        <Table
          label="Groups of users"
          open
          rows={rows}
          keyOf={(row) => row.name}
          stale={isStale(pages)}
          columns={[
            {
              head: "Group",
              width: 18,
              cell: (row) => <Foreign text={row.name} href={link("access", { group: row.name })} />,
            },
            { head: "Priority", width: 9, figure: true, by: (row) => row.priority, cell: (row) => count(row.priority) },
            { head: "Rules", cell: (row) => <RulesInShort rules={row.rules} /> },
            { head: "Includes", width: 14, cell: (row) => visible(row.includes.join(", ")) },
            { head: "Class", width: 9, cell: (row) => visible(row.class ?? "") },
            {
              head: "Note",
              width: 16,
              cell: (row) => <span title={visible(row.note)}>{middle(visible(row.note), 40)}</span>,
            },
            {
              head: "Actions",
              width: 24,
              figure: true,
              cell: (row) => (
                <span class="in-place end">
                  <Action
                    quiet
                    needs="administrator"
                    unless={unreachable(row.name)}
                    onClick={() => setAsked({ deed: "change", group: row })}
                  >
                    Change…
                  </Action>
                  <Action
                    quiet
                    needs="administrator"
                    unless={unreachable(row.name)}
                    onClick={() => setAsked({ deed: "remove", group: row })}
                  >
                    Remove…
                  </Action>
                </span>
              ),
            },
          ]}
        />
      )}
      <Pager pages={pages} what="group" />
      {asked?.deed === "add" && <AddGroup {...told} />}
      {asked?.deed === "change" && <ChangeGroup group={asked.group} {...told} />}
      {asked?.deed === "remove" && <RemoveGroup group={asked.group} {...told} />}
    </>
  );
}

const RulesInShort = ({ rules }: { rules: string[] }) =>
  rules.length === 0 ? (
    <span class="soft">none</span>
  ) : (
    <code title={visible(rules.slice(0, 50).join("\n"))}>
      {middle(visible(rules[0]!), 60)}
      {rules.length > 1 && ` and ${count(rules.length - 1)} more`}
    </code>
  );

interface Told {
  close(): void;
  done(what: string): void;
}

interface FieldsProps {
  values: GroupFields;
  set(change: Partial<GroupFields>): void;
  rules: string;
  setRules(text: string): void;
  includes: string;
  setIncludes(text: string): void;
  problem: Problem | null;
}

function Fields({ values, set, rules, setRules, includes, setIncludes, problem }: FieldsProps) {
  return (
    <>
      <Numbered
        label="Rules"
        hint="One a line, without WHO, such as: allow subscribe plants/#"
        rows={6}
        value={rules}
        set={setRules}
        mistakes={mistakesOf(problem)}
      />
      <Numbered
        label="Includes"
        hint="Groups whose rules follow its own, one a line"
        rows={2}
        value={includes}
        set={setIncludes}
      />
      <div class="pairs">
        <label class="field">
          Priority
          <input
            type="number"
            step={1}
            value={String(values.priority)}
            onInput={(event) =>
              set({
                priority: Number.isInteger(event.currentTarget.valueAsNumber) ? event.currentTarget.valueAsNumber : 0,
              })
            }
          />
        </label>
        <label class="field">
          Class
          <input
            value={values.class ?? ""}
            placeholder="none"
            spellcheck={false}
            onInput={(event) => set({ class: event.currentTarget.value || null })}
          />
        </label>
        <label class="field">
          Note
          <input value={values.note} onInput={(event) => set({ note: event.currentTarget.value })} />
        </label>
      </div>
    </>
  );
}

const names = (typed: string): string[] =>
  linesOf(typed)
    .map((line) => line.trim())
    .filter((line) => line !== "")
    .sort();

function AddGroup({ close, done }: Told) {
  const [name, setName] = useState("");
  const [draft, setDraft] = useState<Partial<GroupFields>>({});
  const [rules, setRules] = useState("");
  const [includes, setIncludes] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const first = useFirst();
  const fields: GroupFields = { ...newGroup, ...draft, rules: linesOf(rules), includes: names(includes) };
  const plan: Plan | null = name === "" ? null : { method: "POST", path: "/groups", body: { name, ...fields } };
  return (
    <Change
      title="Add a group"
      deed={name === "" ? "Add the group" : `Add ${short(name)}`}
      what="group"
      plan={plan}
      command={addGroup(name || "NAME", fields)}
      says={`The group ${short(name)} was added.`}
      close={close}
      done={done}
      onDryRun={setProblem}
    >
      <label class="field">
        Name
        <input
          ref={first}
          value={name}
          spellcheck={false}
          autocomplete="off"
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </label>
      <Fields
        values={fields}
        set={(change) => setDraft({ ...draft, ...change })}
        rules={rules}
        setRules={setRules}
        includes={includes}
        setIncludes={setIncludes}
        problem={problem}
      />
    </Change>
  );
}

function ChangeGroup({ group: opened, close, done }: Told & { group: AccessGroup }) {
  const [group, setGroupRead] = useState(opened);
  const [draft, setDraft] = useState<Partial<GroupFields>>({});
  const [rules, setRules] = useState<string | null>(null);
  const [includes, setIncludes] = useState<string | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const name = group.name;
  const before = groupFields(group);
  // What nobody has touched here is as it is read.
  const fields: GroupFields = {
    ...before,
    ...draft,
    ...(rules === null ? {} : { rules: linesOf(rules) }),
    ...(includes === null ? {} : { includes: names(includes) }),
  };
  const changed = changes(before, fields);
  const plan: Plan | null =
    Object.keys(changed).length === 0
      ? null
      : { method: "PUT", path: pathOf(name), body: fields, ifMatch: etag(group.revision) };
  return (
    <Change
      title={`Change ${short(name)}`}
      deed={`Change ${short(name)}`}
      what="group"
      does="changes the group, also for connected clients"
      plan={plan}
      command={setGroup(name, changed)}
      says={`The group ${short(name)} was changed.`}
      close={close}
      done={done}
      reread={() => read(name).then(setGroupRead)}
      onDryRun={setProblem}
    >
      <Fields
        values={fields}
        set={(change) => setDraft({ ...draft, ...change })}
        rules={rules ?? before.rules.join("\n")}
        setRules={setRules}
        includes={includes ?? before.includes.join("\n")}
        setIncludes={setIncludes}
        problem={problem}
      />
    </Change>
  );
}

function RemoveGroup({ group: opened, close, done }: Told & { group: AccessGroup }) {
  const [group, setGroupRead] = useState(opened);
  const name = group.name;
  return (
    <Change
      title={`Remove ${short(name)}?`}
      deed={`Remove ${short(name)}`}
      what="group"
      danger
      says={`The group ${short(name)} was removed.`}
      plan={{ method: "DELETE", path: pathOf(name), ifMatch: etag(group.revision) }}
      command={commandOf("user-group remove", [name])}
      close={close}
      done={done}
      reread={() => read(name).then(setGroupRead)}
    >
      <p>
        A group that a user is in, or that another group includes, cannot be removed.{" "}
        <a href={link("access", { group: name })}>Users in this group</a>
      </p>
    </Change>
  );
}
