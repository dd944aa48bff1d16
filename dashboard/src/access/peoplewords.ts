// People and keys in words: how many there are, what a change gives, and the command that makes the same change.
import type { KeyRow, NewKey, PersonRow, Role } from "../api/api.types";
import { commandOf, type Options } from "../words/command";
import { plural } from "../words/format";

export const roles: Role[] = ["viewer", "operator", "administrator"];
export const roleSays: Record<Role, string> = {
  viewer: "viewer: reads",
  operator: "operator: also acts on clients and bans",
  administrator: "administrator: also changes the cluster and who may do what",
};

export const hasEnded = ({ ends_at: ends }: KeyRow, now: number): boolean => ends !== null && Date.parse(ends) <= now;
const canChangeAll = ({ role, enabled, has_password: has }: PersonRow): boolean =>
  role === "administrator" && enabled && has;
const isAdministrative = (key: KeyRow, now: number): boolean => key.role === "administrator" && !hasEnded(key, now);

/** `more`: not all of them are listed. */
export function inWords(people: PersonRow[], keys: KeyRow[], now: number, more = false): string {
  const able = people.filter(canChangeAll).length + keys.filter((key) => isAdministrative(key, now)).length;
  const all = `${plural(people.length, "person", "people")}, ${plural(keys.length, "key")}; ${able === 0 ? "none of them" : able} can change everything.`;
  return more ? `At least ${all}` : all;
}

/** What may be said of a person, without the password. */
export type PersonFields = Pick<PersonRow, "role" | "audits" | "enabled" | "must_change" | "note">;
export const newPerson: PersonFields = { role: "viewer", audits: false, enabled: true, must_change: true, note: "" };
/** The fields of a record that a change may give. Fields that this page does not know stay as they are. */
export function personFields({
  name: _name,
  source: _source,
  revision: _revision,
  has_password: _has,
  ...fields
}: PersonRow): PersonFields {
  return fields;
}

function personOptions({ role, audits, note }: Partial<PersonFields>): Options {
  return {
    role,
    ...(audits === undefined ? {} : { audits: String(audits) }),
    ...(note === undefined ? {} : { note: [note] }),
  };
}
/** Without a password: the command asks for it. `keeps`: the person may keep it. */
function proofOptions(isGenerated: boolean, keeps: boolean): Options {
  return { ...(isGenerated ? { generate: true as const } : {}), ...(keeps ? { keep: true as const } : {}) };
}

export function addPerson(
  name: string,
  { role, audits, note, must_change: must }: PersonFields,
  isGenerated: boolean,
  page?: string,
): string {
  const said = { role, ...(audits ? { audits } : {}), ...(note ? { note } : {}) };
  return commandOf("person add", [name], { ...proofOptions(isGenerated, !must), ...personOptions(said) }, page);
}
export const setPerson = (name: string, changed: Partial<PersonFields>, page?: string): string =>
  commandOf("person set", [name], personOptions(changed), page);
export const passwordOf = (name: string, isGenerated: boolean, keeps: boolean, page?: string): string =>
  commandOf("person passwd", [name], proofOptions(isGenerated, keeps), page);

/** `days`: after how many days the key ends; `null`: it stays. */
export function addKey(
  { name, role, audits }: Pick<NewKey, "name" | "role" | "audits">,
  days: number | null,
  page?: string,
): string {
  return commandOf(
    "key add",
    [],
    {
      name,
      role: role ?? undefined,
      ...(audits ? { audits: true as const } : {}),
      ...(days === null ? {} : { for: `${days}d` }),
    },
    page,
  );
}

/** For how long the secret of before a rotation still counts: seconds, as words, and as the command writes it. */
export const overlaps: [seconds: number, words: string, option: string][] = [
  [0, "at once: others know it", "0s"],
  [3600, "in an hour", "1h"],
  [86_400, "in a day", "1d"],
  [7 * 86_400, "in 7 days", "7d"],
  [30 * 86_400, "in 30 days", "30d"],
];
export function rotateKey(id: string, seconds: number, page?: string): string {
  return commandOf(
    "key rotate",
    [id],
    { overlap: overlaps.find(([length]) => length === seconds)?.[2] ?? `${seconds}s` },
    page,
  );
}
