// The time of the cluster, as far as its answers tell it; ages count from it, not from the viewer's clock.
import { signal } from "@preact/signals";
import { time, unknown } from "../words/format";
import { zone } from "../navigation/preferences";

/** The cluster's time less that of this browser. */
export const offsetMs = signal(0);
export const second = signal(Date.now());
setInterval(() => {
  if (!document.hidden) second.value = Date.now();
}, 1000);

export function heard(asOf: string): void {
  const offset = Date.parse(asOf) - Date.now();
  // What the way of the answer took is no difference of clocks.
  offsetMs.value = Math.abs(offset) < 2000 ? 0 : offset;
}

export const clusterNow = (): number => Date.now() + offsetMs.value;
export const showTime = (at: string | number | null | undefined): string => time(at, clusterNow(), zone.value);
/** When something that has run for so long was started, to the minute: figures that count up all the time are no news. */
export function startedAt(seconds: number | null | undefined): string {
  if (seconds == null) return unknown;
  return showTime(Math.floor((clusterNow() / 1000 - seconds) / 60) * 60_000).replace(/:00$/, "");
}
export const secondsSince = (at: string | null | undefined): number | null =>
  at == null ? null : (clusterNow() - Date.parse(at)) / 1000;
