// What is done to a user of MQTT clients.
import { useState } from "preact/hooks";
import type { AccessGroup, AccessUser, AccessUserMade } from "../api/api.types";
import { fill, get, type Problem } from "../api/api";
import { commandOf } from "../words/command";
import { middle, visible } from "../words/format";
import { Change, useFirst, type Plan } from "./change";
import { Numbered } from "./numbered";
import {
  addUser,
  changes,
  etag,
  isReachable,
  linesOf,
  mistakesOf,
  newUser,
  setUser,
  userFields,
  type UserFields,
} from "./words";

export type UserDeed = "change" | "enable" | "disable" | "password" | "remove";

interface Told {
  close(): void;
  /** Says what was done; `secret`: what the broker has made, which is shown once. */
  done(what: string, secret?: { name: string; secret: string }): void;
}

const short = (name: string) => middle(visible(name), 40);
const pathOf = (name: string, more = "") => fill(`/users/{name}${more}`, {}, { name });
const read = (name: string) => get("/users/{name}", {}, { name });
const at = (user: AccessUser) => etag(user.revision);
function secretOf(name: string, answer: unknown) {
  const { secret } = answer as AccessUserMade;
  return secret == null ? undefined : { name, secret };
}

type ProofKind = "password" | "generate";

/** A password is sent when it is set, and in no dry run: there, a secret stands for it, which is not made. */
function proofOf(kind: ProofKind, password: string): { body: object; dryBody: object } | null {
  if (kind === "generate") return { body: { generate: true }, dryBody: { generate: true } };
  return password === "" ? null : { body: { password }, dryBody: { generate: true } };
}

function ProofFields({
  kind,
  setKind,
  password,
  setPassword,
}: {
  kind: ProofKind;
  setKind(kind: ProofKind): void;
  password: string;
  setPassword(text: string): void;
}) {
  return (
    <div class="pairs">
      <label class="field">
        Clients log in with
        <select value={kind} onChange={(event) => setKind(event.currentTarget.value as ProofKind)}>
          <option value="password">a password</option>
          <option value="generate">a generated secret</option>
        </select>
      </label>
      {kind === "password" ? (
        <label class="field">
          Password
          <input
            type="password"
            autocomplete="new-password"
            value={password}
            onInput={(event) => setPassword(event.currentTarget.value)}
          />
        </label>
      ) : (
        <p class="soft small">The secret has 256 random bits, and is shown once, when it is made.</p>
      )}
    </div>
  );
}

interface FieldsProps {
  values: UserFields;
  set(change: Partial<UserFields>): void;
  rules: string;
  setRules(text: string): void;
  groups: AccessGroup[];
  problem: Problem | null;
}

/** The inputs for all but the name and the password. */
function Fields({ values, set, rules, setRules, groups, problem }: FieldsProps) {
  const names = [...new Set([...groups.map((group) => group.name), ...values.groups])].sort();
  const line = (name: "client_ids" | "class", label: string, hint: string) => (
    <label class="field">
      {label}
      <input
        value={values[name] ?? ""}
        placeholder={hint}
        spellcheck={false}
        autocomplete="off"
        onInput={(event) => set({ [name]: event.currentTarget.value || null })}
      />
    </label>
  );
  return (
    <>
      <fieldset class="choices">
        <legend>Groups</legend>
        {names.length === 0 ? (
          <span class="soft small">There are no groups yet.</span>
        ) : (
          names.map((name) => (
            <label key={name} class="check">
              <input
                type="checkbox"
                checked={values.groups.includes(name)}
                onChange={(event) =>
                  set({
                    groups: event.currentTarget.checked
                      ? [...values.groups, name].sort()
                      : values.groups.filter((one) => one !== name),
                  })
                }
              />{" "}
              <span class="foreign">{visible(name)}</span>
            </label>
          ))
        )}
      </fieldset>
      <Numbered
        label="Rules of its own"
        hint="One a line, without WHO, such as: allow publish meters/%u/#"
        rows={3}
        value={rules}
        set={setRules}
        mistakes={mistakesOf(problem)}
      />
      <div class="pairs">
        {line("client_ids", "Client identifiers", "all; * stands for any text")}
        {line("class", "Class", "what else matches decides")}
        <label class="field">
          Ends (UTC)
          <input
            type="datetime-local"
            step={1}
            value={values.ends_at?.slice(0, 19) ?? ""}
            onInput={(event) => set({ ends_at: utc(event.currentTarget.value) })}
          />
        </label>
        <label class="field">
          Note
          <input value={values.note} onInput={(event) => set({ note: event.currentTarget.value })} />
        </label>
      </div>
      <label class="check">
        <input
          type="checkbox"
          checked={values.superuser}
          onChange={(event) => set({ superuser: event.currentTarget.checked })}
        />{" "}
        Its clients may do everything, whatever rules say (superuser)
      </label>
    </>
  );
}

const utc = (typed: string) => (typed === "" ? null : `${typed.length === 16 ? `${typed}:00` : typed}Z`);

export function AddUser({ groups, isFirst, close, done }: Told & { groups: AccessGroup[]; isFirst: boolean }) {
  const first = useFirst();
  const [name, setName] = useState("");
  const [draft, setDraft] = useState<Partial<UserFields>>({});
  const [rules, setRules] = useState("");
  const [kind, setKind] = useState<ProofKind>("password");
  const [password, setPassword] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const fields = { ...newUser, ...draft, rules: linesOf(rules) };
  const proof = proofOf(kind, password);
  const plan: Plan | null =
    name === "" || !proof
      ? null
      : {
          method: "POST",
          path: "/users",
          body: { name, ...fields, ...proof.body },
          dryBody: { name, ...fields, ...proof.dryBody },
        };
  return (
    <Change
      title="Add a user"
      deed={name === "" ? "Add the user" : `Add ${short(name)}`}
      what="user"
      plan={plan}
      command={addUser(name || "NAME", fields, kind === "generate")}
      hint={kind === "password" ? "it asks for the password" : "it prints the secret"}
      says={`The user ${short(name)} was added.`}
      close={close}
      done={(what, answer) => done(what, secretOf(name, answer))}
      onDryRun={setProblem}
    >
      {isFirst && (
        <div class="notice warn">
          <span class="notice-text">
            This is the first user. If <code>authentication.chain</code> is not set, the broker refuses clients without
            a user from then on, unless <code>allowAnonymous</code> is on.
          </span>
        </div>
      )}
      <label class="field">
        User name
        <input
          ref={first}
          value={name}
          spellcheck={false}
          autocomplete="off"
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </label>
      <ProofFields kind={kind} setKind={setKind} password={password} setPassword={setPassword} />
      <Fields
        values={fields}
        set={(change) => setDraft({ ...draft, ...change })}
        rules={rules}
        setRules={setRules}
        groups={groups}
        problem={problem}
      />
    </Change>
  );
}

function ChangeUser({ user: opened, groups, close, done }: Told & { user: AccessUser; groups: AccessGroup[] }) {
  const [user, setUserRead] = useState(opened);
  const [draft, setDraft] = useState<Partial<UserFields>>({});
  const [typed, setTyped] = useState<string | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const name = user.name;
  const before = userFields(user);
  // What nobody has touched here is as it is read.
  const fields: UserFields = { ...before, ...draft, ...(typed === null ? {} : { rules: linesOf(typed) }) };
  const changed = changes(before, fields);
  const plan: Plan | null =
    Object.keys(changed).length === 0 ? null : { method: "PUT", path: pathOf(name), body: fields, ifMatch: at(user) };
  return (
    <Change
      title={`Change ${short(name)}`}
      deed={`Change ${short(name)}`}
      what="user"
      does="changes the user"
      plan={plan}
      command={setUser(name, changed)}
      says={`The user ${short(name)} was changed.`}
      close={close}
      done={(what) => done(what)}
      reread={() => read(name).then(setUserRead)}
      onDryRun={setProblem}
    >
      <Fields
        values={fields}
        set={(change) => setDraft({ ...draft, ...change })}
        rules={typed ?? before.rules.join("\n")}
        setRules={setTyped}
        groups={groups}
        problem={problem}
      />
    </Change>
  );
}

function Password({ user: opened, close, done }: Told & { user: AccessUser }) {
  const [user, setUserRead] = useState(opened);
  const [kind, setKind] = useState<ProofKind>("password");
  const [password, setPassword] = useState("");
  const name = user.name;
  const proof = proofOf(kind, password);
  const plan: Plan | null = proof && { method: "POST", path: pathOf(name, "/password"), ...proof, ifMatch: at(user) };
  return (
    <Change
      title={`Another password for ${short(name)}`}
      deed={kind === "generate" ? "Generate a secret" : "Set the password"}
      what="user"
      does="replaces all passwords and secrets of the user"
      plan={plan}
      command={commandOf("user passwd", [name], kind === "generate" ? { generate: true } : {})}
      hint={kind === "password" ? "it asks for the password" : "it prints the secret"}
      says={`The user ${short(name)} has another ${kind === "generate" ? "secret" : "password"}.`}
      close={close}
      done={(what, answer) => done(what, secretOf(name, answer))}
      reread={() => read(name).then(setUserRead)}
    >
      <p>The password or secret that the user has now no longer lets a client in.</p>
      <ProofFields kind={kind} setKind={setKind} password={password} setPassword={setPassword} />
    </Change>
  );
}

function Enabled({ user: opened, enabled, close, done }: Told & { user: AccessUser; enabled: boolean }) {
  const [user, setUserRead] = useState(opened);
  const name = user.name;
  const [verb, past, does] = enabled
    ? (["Enable", "enabled", "enables the user"] as const)
    : (["Disable", "disabled", "disables the user"] as const);
  return (
    <Change
      title={`${verb} ${short(name)}?`}
      deed={`${verb} ${short(name)}`}
      what="user"
      does={does}
      danger={!enabled}
      says={`The user ${short(name)} was ${past}.`}
      plan={{ method: "PUT", path: pathOf(name), body: { ...userFields(user), enabled }, ifMatch: at(user) }}
      command={commandOf(`user ${verb.toLowerCase()}`, [name])}
      close={close}
      done={(what) => done(what)}
      reread={() => read(name).then(setUserRead)}
    >
      <p>
        {enabled
          ? "Clients can log in as this user again, with the password or secret that it has."
          : "Nobody can log in as this user until it is enabled again. Its password, groups and rules stay."}
      </p>
    </Change>
  );
}

function Remove({ user: opened, close, done }: Told & { user: AccessUser }) {
  const [user, setUserRead] = useState(opened);
  const name = user.name;
  return (
    <Change
      title={`Remove ${short(name)}?`}
      deed={`Remove ${short(name)}`}
      what="user"
      danger
      says={`The user ${short(name)} was removed.`}
      plan={{ method: "DELETE", path: pathOf(name), ifMatch: at(user) }}
      command={commandOf("user remove", [name])}
      close={close}
      done={(what) => done(what)}
      reread={() => read(name).then(setUserRead)}
    >
      <p>
        The user is removed with its password and its rules. Sessions of its clients are kept, and so are its groups.
      </p>
    </Change>
  );
}

export function UserDeedDialog({
  deed,
  user,
  groups,
  ...told
}: Told & { deed: UserDeed; user: AccessUser; groups: AccessGroup[] }) {
  switch (deed) {
    case "change":
      return <ChangeUser user={user} groups={groups} {...told} />;
    case "password":
      return <Password user={user} {...told} />;
    case "enable":
    case "disable":
      return <Enabled user={user} enabled={deed === "enable"} {...told} />;
    case "remove":
      return <Remove user={user} {...told} />;
  }
}

/** Why a name cannot be named in a path, or `null`. */
export const unlessReachable = (name: string): string | null =>
  isReachable(name) ? null : "browsers cannot name this user in a path: heraldmq user changes it";
