// What the browser keeps: theme, zone, whether keys work and the columns of tables that are hidden. Nothing else.
import { effect, signal } from "@preact/signals";
import type { Zone } from "../words/format";

export type Theme = "system" | "light" | "dark";

const kept = (name: string): string | null => localStorage.getItem(`heraldmq.${name}`);
const keep = (name: string, value: string) => localStorage.setItem(`heraldmq.${name}`, value);
const oneOf = <T extends string>(value: string | null, all: readonly T[]): T =>
  all.find((one) => one === value) ?? all[0]!;

export const theme = signal<Theme>(oneOf(kept("theme"), ["system", "light", "dark"]));
export const zone = signal<Zone>(oneOf(kept("zone"), ["local", "UTC"]));
/** Heads of the columns that are hidden, by table. */
export const hiddenColumns = signal<Record<string, string[]>>(JSON.parse(kept("hidden-columns") ?? "{}"));
export const keysOn = signal(kept("keys") !== "off");

effect(() => {
  keep("theme", theme.value);
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});
effect(() => keep("zone", zone.value));
effect(() => keep("hidden-columns", JSON.stringify(hiddenColumns.value)));
effect(() => keep("keys", keysOn.value ? "on" : "off"));
