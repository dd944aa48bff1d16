// What is done to a person who signs in at the dashboard and the HTTP API.
import { useState } from "preact/hooks";
import type { PersonMade, PersonRow, Role } from "../api/api.types";
import { fill, get } from "../api/api";
import { commandOf } from "../words/command";
import { middle, visible } from "../words/format";
import { me } from "../api/session";
import { isLongEnough, shortest } from "../parts/signin";
import { Change, useFirst, type Plan } from "./change";
import {
  addPerson,
  newPerson,
  passwordOf,
  personFields,
  roleSays,
  roles,
  setPerson,
  type PersonFields,
} from "./peoplewords";
import { changes, etag } from "./words";

export type PersonDeed = "change" | "password" | "enable" | "disable" | "remove";

export interface Made {
  name: string;
  secret: string;
  kind: "password" | "key";
}

interface Told {
  close(): void;
  /** Says what was done; `made`: what the broker has made, which is shown once. */
  done(what: string, made?: Made): void;
}

const short = (name: string) => middle(visible(name), 40);
const pathOf = (name: string) => fill("/people/{name}", {}, { name });
const read = (name: string) => get("/people/{name}", {}, { name });
const at = (person: PersonRow) => etag(person.revision);
function madeOf(name: string, answer: unknown): Made | undefined {
  const { secret } = answer as PersonMade;
  return secret == null ? undefined : { name, secret, kind: "password" };
}

export function RoleFields({
  role,
  audits,
  set,
}: {
  role: Role;
  audits: boolean;
  set(change: { role?: Role; audits?: boolean }): void;
}) {
  return (
    <>
      <label class="field">
        Role
        <select value={role} onChange={(event) => set({ role: event.currentTarget.value as Role })}>
          {roles.map((name) => (
            <option key={name} value={name}>
              {roleSays[name]}
            </option>
          ))}
        </select>
      </label>
      <label class="check">
        <input
          type="checkbox"
          checked={audits || role === "administrator"}
          disabled={role === "administrator"}
          onChange={(event) => set({ audits: event.currentTarget.checked })}
        />{" "}
        Reads the audit{role === "administrator" && " (administrators always do)"}
      </label>
    </>
  );
}

interface Proof {
  isGenerated: boolean;
  password: string;
  must: boolean;
}
const noProof: Proof = { isGenerated: false, password: "", must: true };

/** A password is sent when it is set, and in no dry run: there, one that is not made stands for it. */
function bodiesOf({ isGenerated, password }: Proof): { body: object; dryBody: object } | null {
  if (isGenerated) return { body: { generate: true }, dryBody: { generate: true } };
  return isLongEnough(password) ? { body: { password }, dryBody: { generate: true } } : null;
}

function ProofFields({ proof, set }: { proof: Proof; set(proof: Proof): void }) {
  return (
    <>
      <div class="pairs">
        <label class="field">
          Signs in with
          <select
            value={proof.isGenerated ? "generate" : "password"}
            onChange={(event) => set({ ...proof, isGenerated: event.currentTarget.value === "generate" })}
          >
            <option value="password">a password that you type</option>
            <option value="generate">a generated password</option>
          </select>
        </label>
        {proof.isGenerated ? (
          <p class="soft small">The password is random, and is shown once, when it is made.</p>
        ) : (
          <label class="field">
            <span>Password, at least {shortest} characters</span>
            <input
              type="password"
              autocomplete="new-password"
              value={proof.password}
              onInput={(event) => set({ ...proof, password: event.currentTarget.value })}
            />
          </label>
        )}
      </div>
      <label class="check">
        <input
          type="checkbox"
          checked={proof.must}
          onChange={(event) => set({ ...proof, must: event.currentTarget.checked })}
        />{" "}
        Has to choose another password at the next login
      </label>
    </>
  );
}

const asks = ({ isGenerated }: Proof) => (isGenerated ? "it prints the password" : "it asks for the password");

export function AddPerson({ close, done }: Told) {
  const first = useFirst();
  const [name, setName] = useState("");
  const [draft, setDraft] = useState<Partial<PersonFields>>({});
  const [proof, setProof] = useState(noProof);
  const fields: PersonFields = { ...newPerson, ...draft, must_change: proof.must };
  const bodies = bodiesOf(proof);
  const plan: Plan | null =
    name === "" || !bodies
      ? null
      : {
          method: "POST",
          path: "/people",
          body: { name, ...fields, ...bodies.body },
          dryBody: { name, ...fields, ...bodies.dryBody },
        };
  return (
    <Change
      title="Add a person"
      deed={name === "" ? "Add the person" : `Add ${short(name)}`}
      what="person"
      clients={false}
      plan={plan}
      command={addPerson(name || "NAME", fields, proof.isGenerated)}
      hint={asks(proof)}
      says={`${short(name)} was added as ${fields.role}.`}
      close={close}
      done={(what, answer) => done(what, madeOf(name, answer))}
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
      <ProofFields proof={proof} set={setProof} />
      <RoleFields role={fields.role} audits={fields.audits} set={(change) => setDraft({ ...draft, ...change })} />
      <label class="field">
        Note
        <input value={fields.note} onInput={(event) => setDraft({ ...draft, note: event.currentTarget.value })} />
      </label>
    </Change>
  );
}

interface DeedProps extends Told {
  person: PersonRow;
}

/** What is done to oneself may end the way in. */
function Self({ person, children }: { person: PersonRow; children: string }) {
  return me.value?.user === person.name ? (
    <div class="notice warn">
      <span class="notice-text">This is you. {children}</span>
    </div>
  ) : null;
}

function ChangePerson({ person: opened, close, done }: DeedProps) {
  const [person, setPersonRead] = useState(opened);
  const [draft, setDraft] = useState<Partial<PersonFields>>({});
  const name = person.name;
  const before = personFields(person);
  const fields: PersonFields = { ...before, ...draft };
  const changed = changes(before, fields);
  const plan: Plan | null =
    Object.keys(changed).length === 0 ? null : { method: "PUT", path: pathOf(name), body: fields, ifMatch: at(person) };
  return (
    <Change
      title={`Change ${short(name)}`}
      deed={`Change ${short(name)}`}
      what="person"
      clients={false}
      does={
        changed.role
          ? `makes the ${person.role} ${changed.role === "viewer" ? "a" : "an"} ${changed.role}, at once`
          : "changes the person"
      }
      plan={plan}
      command={setPerson(name, changed)}
      says={`${short(name)} was changed.`}
      close={close}
      done={(what) => done(what)}
      reread={() => read(name).then(setPersonRead)}
    >
      {changed.role && <Self person={person}>With another role, you may not be able to take it back.</Self>}
      <RoleFields role={fields.role} audits={fields.audits} set={(change) => setDraft({ ...draft, ...change })} />
      <label class="field">
        Note
        <input value={fields.note} onInput={(event) => setDraft({ ...draft, note: event.currentTarget.value })} />
      </label>
    </Change>
  );
}

function Password({ person: opened, close, done }: DeedProps) {
  const [person, setPersonRead] = useState(opened);
  const [proof, setProof] = useState(noProof);
  const name = person.name;
  const bodies = bodiesOf(proof);
  const fields: PersonFields = { ...personFields(person), must_change: proof.must };
  const plan: Plan | null = bodies && {
    method: "PUT",
    path: pathOf(name),
    body: { ...fields, ...bodies.body },
    dryBody: { ...fields, ...bodies.dryBody },
    ifMatch: at(person),
  };
  return (
    <Change
      title={`Another password for ${short(name)}`}
      deed={proof.isGenerated ? "Generate a password" : "Set the password"}
      what="person"
      clients={false}
      does="replaces the password, and ends all sessions of the person"
      plan={plan}
      command={passwordOf(name, proof.isGenerated, !proof.must)}
      hint={asks(proof)}
      says={`${short(name)} has another password.`}
      close={close}
      done={(what, answer) => done(what, madeOf(name, answer))}
      reread={() => read(name).then(setPersonRead)}
    >
      <ProofFields proof={proof} set={setProof} />
    </Change>
  );
}

function Enabled({ person: opened, enabled, close, done }: DeedProps & { enabled: boolean }) {
  const [person, setPersonRead] = useState(opened);
  const name = person.name;
  const [verb, past, does] = enabled
    ? (["Enable", "enabled", "enables the person"] as const)
    : (["Disable", "disabled", "disables the person, and ends all sessions of the person"] as const);
  return (
    <Change
      title={`${verb} ${short(name)}?`}
      deed={`${verb} ${short(name)}`}
      what="person"
      clients={false}
      does={does}
      danger={!enabled}
      says={`${short(name)} was ${past}.`}
      plan={{ method: "PUT", path: pathOf(name), body: { ...personFields(person), enabled }, ifMatch: at(person) }}
      command={commandOf(`person ${verb.toLowerCase()}`, [name])}
      close={close}
      done={(what) => done(what)}
      reread={() => read(name).then(setPersonRead)}
    >
      {!enabled && (
        <Self person={person}>You are signed out, and only another administrator can let you in again.</Self>
      )}
      <p>
        {enabled
          ? "The person can sign in again, with the password of before."
          : "The person cannot sign in until somebody enables the person again. The password and the role stay."}
      </p>
    </Change>
  );
}

function Remove({ person: opened, close, done }: DeedProps) {
  const [person, setPersonRead] = useState(opened);
  const name = person.name;
  return (
    <Change
      title={`Remove ${short(name)}?`}
      deed={`Remove ${short(name)}`}
      what="person"
      clients={false}
      danger
      says={`${short(name)} was removed.`}
      plan={{ method: "DELETE", path: pathOf(name), ifMatch: at(person) }}
      command={commandOf("person remove", [name])}
      close={close}
      done={(what) => done(what)}
      reread={() => read(name).then(setPersonRead)}
    >
      <Self person={person}>You are signed out.</Self>
      <p>The person is removed with the password, and signed out at all nodes. Keys that the person has made stay.</p>
    </Change>
  );
}

export function PersonDeedDialog({ deed, ...asked }: DeedProps & { deed: PersonDeed }) {
  switch (deed) {
    case "change":
      return <ChangePerson {...asked} />;
    case "password":
      return <Password {...asked} />;
    case "enable":
    case "disable":
      return <Enabled enabled={deed === "enable"} {...asked} />;
    case "remove":
      return <Remove {...asked} />;
  }
}
