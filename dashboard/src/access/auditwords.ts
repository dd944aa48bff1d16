// The audit in words: how much there is of it, what an entry has changed, and where its target is.
import type { AuditField, AuditHead, AuditRow } from "../api/api.types";
import { count, plural, type Zone, day, duration, words } from "../words/format";
import { link } from "../navigation/route-text";
import { difference } from "./words";

const means: Record<string, string> = {
  key: "key",
  person: "person",
  token: "key in http.tokenFile",
  import: "import",
  file_key: "key in http.keyFile",
  file_person: "person in http.userFile",
  first_code: "code in the log",
  node: "by itself",
};
/** How somebody has shown who they are. */
export const meansSays = (name: string): string => means[name] ?? words(name);

type Who = Pick<AuditRow, "actor" | "means" | "node">;
/** Who has done it: what nodes do by themselves has no actor. `nameOf`: the name of a node. */
export const actorOf = ({ actor, means, node }: Who, nameOf: (node: string) => string): string =>
  actor === "" && means === "node" ? nameOf(node) : actor;

/** `since`: when the first entry that is kept was made, if that is known; `last`: the latest entry with its actor as a text that can be shown. */
export function inWords(
  { first, next }: AuditHead,
  since: string | null,
  last: { actor: string; at: string } | null,
  now: number,
  zone: Zone,
): string {
  const kept = next - first;
  if (kept === 0) return "The audit has no entries yet.";
  const before = first > 0 ? `; ${plural(first, "earlier one is", "earlier ones are")} no longer kept` : "";
  const latest = last
    ? `; the last one is by ${last.actor || "somebody without a name"}, ${duration((now - Date.parse(last.at)) / 1000)} ago`
    : "";
  return `${plural(kept, "entry", "entries")}${since ? ` since ${day(since, zone)}` : ""}${before}${latest}.`;
}

/** Fields that say something: a record that was added or removed is shown without what was empty. */
export const told = (fields: AuditField[]): AuditField[] =>
  fields.filter(({ before, after }) => (before ?? "") !== "" || (after ?? "") !== "");

/** A value as people read it. The API gives times of records in ms of Unix time, with names that end in `_ms`. */
export function shownValue({ name }: AuditField, value: string, showTime: (ms: number) => string): string {
  if (value === "") return "nothing";
  if (name.endsWith("_ms") && /^\d+$/.test(value)) return showTime(Number(value));
  return name === "secrets"
    ? value.replace(/\buntil (\d+)/g, (_, ms: string) => `until ${showTime(Number(ms))}`)
    : value;
}

export const nameOfField = (name: string): string => words(name.replace(/_ms$/, ""));

const isOfLines = ({ before, after }: AuditField) => [before, after].some((value) => value?.includes("\n"));
const linesOf = (value: string | null) => (value ? value.split("\n") : []);

/** A field in a line. */
export function fieldSays(field: AuditField, showTime: (ms: number) => string): string {
  const { before, after } = field;
  const name = nameOfField(field.name);
  const only = before ?? after ?? "";
  if (isOfLines(field)) {
    const found = difference(linesOf(before), linesOf(after));
    const parts = [
      found?.removed.length ? `${plural(found.removed.length, "line")} less` : "",
      found?.added.length ? `${plural(found.added.length, "line")} more` : "",
    ].filter(Boolean);
    return `${name}: ${before === null || after === null ? plural(linesOf(only).length, "line") : parts.join(", ")}`;
  }
  const value = (text: string) => shownValue(field, text, showTime);
  if (before === null || after === null) return `${name}: ${value(only)}`;
  // What is not shown, such as a password, is another one.
  return before === after ? `${name}: replaced (${value(after)})` : `${name}: ${value(before)} → ${value(after)}`;
}

/** What a field has lost and got, line by line; what is the same in both is left out. */
export function fieldLines(field: AuditField, showTime: (ms: number) => string): { mark: "−" | "+"; line: string }[] {
  const lines = (value: string | null) =>
    isOfLines(field) ? linesOf(value) : value ? [shownValue(field, value, showTime)] : [];
  const found = difference(lines(field.before), lines(field.after));
  return [
    ...(found?.removed ?? []).map((line) => ({ mark: "−" as const, line })),
    ...(found?.added ?? []).map((line) => ({ mark: "+" as const, line })),
  ];
}

const longest = 72;
/** Whether the fields are too long for a line. */
export const isLong = (fields: AuditField[], says: string): boolean => says.length > longest || fields.some(isOfLines);

/** The page of what was changed, if there is one. */
export function targetLink({ action, target }: Pick<AuditRow, "action" | "target">): string | undefined {
  const node = /^nodes\/([^/]+)/.exec(target)?.[1];
  switch (action.split(".")[0]) {
    case "user":
      return link("user", { id: target });
    case "group":
      return link("access", { tab: "groups" });
    case "rules":
      return link("access", { tab: "rules" });
    case "person":
    case "key":
      return link("people");
    case "bans":
      return link("bans");
    case "nodes":
      return node && link("nodes", { node });
    default:
      return undefined;
  }
}

/** How actions begin that the page offers. */
export const actions = [
  "user.",
  "group.",
  "rules.",
  "person.",
  "key.",
  "login",
  "refused",
  "bans.",
  "nodes.",
  "shards.",
  "publish",
];

/** Which entry the head is of. */
export const headSays = ({ next }: AuditHead): string =>
  next === 0 ? "before the first entry" : `of entry ${count(next - 1)}`;
