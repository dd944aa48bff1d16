// What is done to a key of the HTTP API.
import { useState } from "preact/hooks";
import type { KeyMade, KeyRow, Role } from "../api/api.types";
import { ApiError, fill, get } from "../api/api";
import { clusterNow, showTime } from "../api/clock";
import { commandOf } from "../words/command";
import { middle, visible } from "../words/format";
import { Change, useFirst, type Plan } from "./change";
import { addKey, overlaps, rotateKey } from "./peoplewords";
import { RoleFields, type Made } from "./persondialogs";
import { etag } from "./words";

export type KeyDeed = "rotate" | "remove";

interface Told {
  close(): void;
  done(what: string, made?: Made): void;
}

const short = (name: string) => middle(visible(name), 40);
const pathOf = (id: string, more = "") => fill(`/keys/{id}${more}`, {}, { id });
function madeOf(name: string, answer: unknown): Made | undefined {
  const { secret } = answer as KeyMade;
  return secret == null ? undefined : { name, secret, kind: "key" };
}

/** The API has no path of one key: it is looked for in the list. */
async function read(id: string): Promise<KeyRow> {
  for (let after: string | null | undefined; after !== null; ) {
    const page: { items: KeyRow[]; next: string | null } = await get("/keys", { after, limit: 500 });
    const found = page.items.find((key) => key.id === id);
    if (found) return found;
    after = page.next;
  }
  throw new ApiError({
    type: "about:blank",
    title: "There is no such key",
    status: 404,
    detail: "Somebody has removed it.",
    instance: "",
  });
}

const dayMs = 86_400_000;
const mostDays = 36_500;

export function AddKey({ close, done }: Told) {
  const first = useFirst();
  const [name, setName] = useState("");
  const [rights, setRights] = useState<{ role: Role; audits: boolean }>({ role: "viewer", audits: false });
  // The end is as of when it was typed: a dry run has the same one as the change.
  const [end, setEnd] = useState<{ typed: string; days: number | null; at: string | null }>({
    typed: "",
    days: null,
    at: null,
  });
  const isDays = end.typed === "" || end.days !== null;
  function setDays(typed: string) {
    const days = /^\d+$/.test(typed) && Number(typed) >= 1 && Number(typed) <= mostDays ? Number(typed) : null;
    setEnd({
      typed,
      days,
      at: days === null ? null : new Date(clusterNow() + days * dayMs).toISOString().replace(/\.\d+Z$/, "Z"),
    });
  }
  const plan: Plan | null =
    name === "" || !isDays ? null : { method: "POST", path: "/keys", body: { name, ...rights, ends_at: end.at } };
  return (
    <Change
      title="Add a key"
      deed={name === "" ? "Add the key" : `Add ${short(name)}`}
      what="key"
      clients={false}
      plan={plan}
      command={addKey({ name: name || "NAME", ...rights }, end.days)}
      hint="it prints the key"
      says={`The key ${short(name)} was added.`}
      close={close}
      done={(what, answer) => done(what, madeOf(name, answer))}
    >
      <label class="field">
        Name, such as the program that uses it
        <input
          ref={first}
          value={name}
          spellcheck={false}
          autocomplete="off"
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </label>
      <RoleFields {...rights} set={(change) => setRights({ ...rights, ...change })} />
      <label class="field">
        Ends after days
        <input
          value={end.typed}
          inputMode="numeric"
          placeholder="never"
          autocomplete="off"
          onInput={(event) => setDays(event.currentTarget.value.trim())}
        />
      </label>
      {!isDays && (
        <p class="soft small" role="status">
          Type a number of days from 1 to {mostDays}, or nothing.
        </p>
      )}
      {end.at && <p class="soft small">The broker refuses the key from {showTime(end.at)} on.</p>}
    </Change>
  );
}

function Rotate({ keyRow: opened, close, done }: Told & { keyRow: KeyRow }) {
  const [key, setKeyRead] = useState(opened);
  const [seconds, setSeconds] = useState(3600);
  const { id, name, old_secret_ends_at: old } = key;
  return (
    <Change
      title={`Another secret for ${short(name)}`}
      deed="Generate a secret"
      what="key"
      clients={false}
      danger={seconds === 0}
      does={
        seconds === 0
          ? "replaces the secret at once"
          : `adds a secret; that of now ends ${overlaps.find(([length]) => length === seconds)?.[1] ?? "later"}`
      }
      plan={{ method: "POST", path: pathOf(id, "/rotate"), body: { overlap_s: seconds }, ifMatch: etag(key.revision) }}
      command={rotateKey(id, seconds)}
      hint="it prints the key"
      says={`The key ${short(name)} has another secret.`}
      close={close}
      done={(what, answer) => done(what, madeOf(name, answer))}
      reread={() => read(id).then(setKeyRead)}
    >
      <p>The key keeps its name, its role and its end. Programs that use it need the new text.</p>
      <label class="field">
        The secret of now ends
        <select value={seconds} onChange={(event) => setSeconds(Number(event.currentTarget.value))}>
          {overlaps.map(([length, words]) => (
            <option key={length} value={length}>
              {words}
            </option>
          ))}
        </select>
      </label>
      {old !== null && Date.parse(old) > clusterNow() && (
        <div class="notice warn">
          <span class="notice-text">
            A secret from before the last rotation still counts until {showTime(old)}. It ends at once.
          </span>
        </div>
      )}
    </Change>
  );
}

function Remove({ keyRow: opened, close, done }: Told & { keyRow: KeyRow }) {
  const [key, setKeyRead] = useState(opened);
  const { id, name } = key;
  return (
    <Change
      title={`Remove ${short(name)}?`}
      deed={`Remove ${short(name)}`}
      what="key"
      clients={false}
      danger
      says={`The key ${short(name)} was removed.`}
      plan={{ method: "DELETE", path: pathOf(id), ifMatch: etag(key.revision) }}
      command={commandOf("key remove", [id])}
      close={close}
      done={(what) => done(what)}
      reread={() => read(id).then(setKeyRead)}
    >
      <p>
        The broker refuses requests with the key <code>{id}</code> from then on.
      </p>
    </Change>
  );
}

export function KeyDeedDialog({ deed, ...asked }: Told & { deed: KeyDeed; keyRow: KeyRow }) {
  return deed === "rotate" ? <Rotate {...asked} /> : <Remove {...asked} />;
}
