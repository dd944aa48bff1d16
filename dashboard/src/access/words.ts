// Users, groups and rules in words: how current a node's copy is, what a change would do, and the command that makes the same change.
import type { AccessEffects, AccessGroup, AccessStatus, AccessUser } from "../api/api.types";
import type { Problem } from "../api/api";
import { commandOf, type Options } from "../words/command";
import { duration, plural } from "../words/format";

/** How many records the asked node has, and whether its copy is current. */
export function standing({ users, groups, standing: is, stale_s: stale }: AccessStatus): string {
  if (is === "unused") return "No user, group or rule was ever added.";
  const copy =
    is === "unconfirmed"
      ? "this node does not know yet whether its copy is current, and lets no user in until then"
      : stale > 0
        ? `for ${duration(stale)} this node has not known whether its copy is current`
        : "this node's copy is current";
  return `${plural(users, "user")} and ${plural(groups, "group")}; ${copy}.`;
}

const capital = (text: string) => text.slice(0, 1).toUpperCase() + text.slice(1);

/** What a dry run says. `deed`: what the change does to a record that exists, such as "disables the user"; `ofClients`: whether it can disconnect any. */
export function effectsSay(
  { would, clients_ended: ended, at_least: least }: AccessEffects,
  what: string,
  deed = `replaces the ${what}`,
  ofClients = true,
): string {
  const clients =
    ended == null
      ? "the number of clients that are disconnected is not known, because a node did not answer"
      : ended === 0
        ? "no client is disconnected"
        : `${least ? "at least " : ""}${plural(ended, "client is", "clients are")} disconnected`;
  if (would === "keep")
    return `Changes nothing: the ${what} is like this already${ended === 0 || !ofClients ? "" : `; ${clients}`}.`;
  const does = would === "create" ? `adds the ${what}` : would === "remove" ? `removes the ${what}` : deed;
  return ofClients ? `${capital(does)}; ${clients}.` : `${capital(does)}.`;
}

/** What can be said of a user, without what its password is. */
export type UserFields = Omit<AccessUser, "name" | "revision" | "proofs">;
export type GroupFields = Omit<AccessGroup, "name" | "revision">;

export const newUser: UserFields = {
  enabled: true,
  groups: [],
  rules: [],
  client_ids: null,
  class: null,
  superuser: false,
  ends_at: null,
  note: "",
};
export const newGroup: GroupFields = { priority: 0, rules: [], includes: [], class: null, note: "" };

/** The fields of a record that a change may give. Fields that this page does not know stay as they are. */
export function userFields({ name: _name, revision: _revision, proofs: _proofs, ...fields }: AccessUser): UserFields {
  return { ...newUser, ...fields };
}
export function groupFields({ name: _name, revision: _revision, ...fields }: AccessGroup): GroupFields {
  return { ...newGroup, ...fields };
}

/** The fields of `after` that `before` has otherwise. */
export function changes<Fields extends object>(before: Fields, after: Fields): Partial<Fields> {
  const differs = ([field, value]: [string, unknown]) =>
    JSON.stringify(value) !== JSON.stringify(before[field as keyof Fields]);
  return Object.fromEntries(Object.entries(after).filter(differs)) as Partial<Fields>;
}

const list = (option: string, values: string[] | undefined, none: string): Options =>
  values === undefined ? {} : values.length > 0 ? { [option]: values } : { [none]: true };
/** An empty value takes the field away. */
const text = (option: string, value: string | null | undefined): Options =>
  value === undefined ? {} : { [option]: [value ?? ""] };

export function userOptions(fields: Partial<UserFields>): Options {
  return {
    ...list("group", fields.groups, "no-groups"),
    ...list("rule", fields.rules, "no-rules"),
    ...text("client-ids", fields.client_ids),
    ...text("class", fields.class),
    ...(fields.superuser === undefined ? {} : { superuser: String(fields.superuser) }),
    ...text("ends-at", fields.ends_at),
    ...text("note", fields.note),
  };
}

export function groupOptions(fields: Partial<GroupFields>): Options {
  return {
    ...(fields.priority === undefined ? {} : { priority: String(fields.priority) }),
    ...list("rule", fields.rules, "no-rules"),
    ...list("include", fields.includes, "no-includes"),
    ...text("class", fields.class),
    ...text("note", fields.note),
  };
}

/** Without a password: the command asks for it. */
export const addUser = (name: string, fields: UserFields, generate: boolean, page?: string): string =>
  commandOf(
    "user add",
    [name],
    { ...(generate ? { generate: true as const } : {}), ...userOptions(changes(newUser, fields)) },
    page,
  );
export const setUser = (name: string, changed: Partial<UserFields>, page?: string): string =>
  commandOf("user set", [name], userOptions(changed), page);
export const addGroup = (name: string, fields: GroupFields, page?: string): string =>
  commandOf("user-group add", [name], groupOptions(changes(newGroup, fields)), page);
export const setGroup = (name: string, changed: Partial<GroupFields>, page?: string): string =>
  commandOf("user-group set", [name], groupOptions(changed), page);

/** The lines of a text that was typed, without the empty ones at its end. */
export const linesOf = (typed: string): string[] => (typed.trim() === "" ? [] : typed.trimEnd().split(/\r\n|\n|\r/));

export interface Mistake {
  line: number;
  reason: string;
}

/** Mistakes of rules with their lines, which the API counts from 1. */
export function mistakesOf(problem: Problem | null): Mistake[] {
  const all = problem?.mistakes;
  return Array.isArray(all)
    ? (all as Mistake[]).filter((one) => typeof one?.line === "number" && typeof one.reason === "string")
    : [];
}

export interface Difference {
  /** The first line that differs, from 1. */
  from: number;
  removed: string[];
  added: string[];
}

/** What is between the lines that both begin and end with; `null`: they are the same. */
export function difference(before: string[], after: string[]): Difference | null {
  let first = 0;
  while (first < before.length && first < after.length && before[first] === after[first]) first++;
  let last = 0;
  while (last < before.length - first && last < after.length - first && before.at(-1 - last) === after.at(-1 - last))
    last++;
  const [removed, added] = [before.slice(first, before.length - last), after.slice(first, after.length - last)];
  return removed.length + added.length === 0 ? null : { from: first + 1, removed, added };
}

export interface RuleOf {
  /** The group whose rule it is; `null`: the user's own. */
  group: string | null;
  /** Its number among the rules of the login, from 1, as a verdict of the broker names it. */
  number: number;
  text: string;
}

/** The rules that a user brings to its login, in the order in which the broker judges them. */
export function rulesOf(user: AccessUser, groups: ReadonlyMap<string, AccessGroup>): RuleOf[] {
  const found: Omit<RuleOf, "number">[] = user.rules.map((rule) => ({ group: null, text: rule }));
  const seen = new Set<string>();
  const add = (name: string) => {
    if (seen.has(name)) return;
    seen.add(name);
    for (const rule of groups.get(name)?.rules ?? []) found.push({ group: name, text: rule });
  };
  const priority = (name: string) => groups.get(name)?.priority ?? 0;
  const bytewise = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
  for (const name of [...user.groups].sort((a, b) => priority(b) - priority(a) || bytewise(a, b))) {
    add(name);
    for (const included of groups.get(name)?.includes ?? []) add(included);
  }
  return found.map((rule, n) => ({ ...rule, number: n + 1 }));
}

/** A browser and its proxies take these two for steps in a path, however they are written. */
export const isReachable = (name: string): boolean => name !== "" && name !== "." && name !== "..";
export const etag = (revision: number): string => `"r${revision}"`;
