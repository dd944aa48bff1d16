// Figures, times and foreign texts as people read them. `null` is "not known" and becomes an en dash.

export const unknown = "–";
const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const count = (n: number | null | undefined): string => (n == null ? unknown : grouped.format(n));

/** A number per second, without the unit. */
export function rate(n: number | null | undefined): string {
  if (n == null) return unknown;
  return n === 0 || n >= 9.995 ? grouped.format(n) : n.toFixed(2);
}

/** Bytes in powers of 1,000. */
export function bytes(n: number | null | undefined): string {
  return n == null ? unknown : scaled(n, ["B", "kB", "MB", "GB", "TB", "PB"]);
}

function scaled(n: number, units: string[]): string {
  let unit = 0;
  while (n >= 999.5 && unit < units.length - 1) {
    n /= 1000;
    unit++;
  }
  const digits = unit === 0 ? 0 : n < 99.95 ? 1 : 0;
  return `${n.toFixed(digits)} ${units[unit]}`.trim();
}

/** A time that was measured in ms, to two figures and more. */
export function milliseconds(n: number | null | undefined): string {
  if (n == null) return unknown;
  if (n >= 999.5) return `${(n / 1000).toFixed(n < 9_995 ? 1 : 0)} s`;
  return `${n.toFixed(n < 0.995 ? 2 : n < 9.95 ? 1 : 0)} ms`;
}

/** The text at a tick of an axis: `12 k`, `0.2`. */
export function tick(n: number): string {
  if (n !== 0 && Math.abs(n) < 1) return String(Number(n.toPrecision(2)));
  for (const [size, unit] of [
    [1e12, " T"],
    [1e9, " G"],
    [1e6, " M"],
    [1e3, " k"],
  ] as const)
    if (Math.abs(n) >= size) return Number((n / size).toPrecision(3)) + unit;
  return String(Number(n.toPrecision(3)));
}

/** Per cent, with a tenth below 10 %. */
export function share(part: number | null | undefined): string {
  if (part == null) return unknown;
  const percent = part * 100;
  if (percent >= 9.95 || percent <= 0) return `${Math.round(percent)} %`;
  return percent < 0.05 ? "<0.1 %" : `${percent.toFixed(1)} %`;
}

/** A span of time in its two largest units. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return unknown;
  const whole = Math.max(0, Math.round(seconds));
  const units = [
    ["d", 86_400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ] as const;
  const first = units.findIndex(([, size]) => whole >= size);
  if (first < 0) return "0 s";
  const [name, size] = units[first]!;
  const next = units[first + 1];
  const rest = next ? Math.floor((whole % size) / next[1]) : 0;
  return `${Math.floor(whole / size)} ${name}${next && rest > 0 ? ` ${rest} ${next[0]}` : ""}`;
}

export type Zone = "local" | "UTC";
const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const two = (n: number) => String(n).padStart(2, "0");

/** A moment: the time if it is of today, else the day as well. */
export function time(at: string | number | null | undefined, now: number, zone: Zone): string {
  if (at == null) return unknown;
  const [moment, today] = [parts(new Date(at), zone), parts(new Date(now), zone)];
  const clock = `${two(moment.hours)}:${two(moment.minutes)}`;
  if (moment.year === today.year && moment.month === today.month && moment.day === today.day)
    return `${clock}:${two(moment.seconds)}`;
  const day = `${moment.day} ${months[moment.month]}`;
  return moment.year === today.year ? `${day} ${clock}` : `${day} ${moment.year}`;
}

/** A day, as in 2026-11-24. */
export function day(at: string | number, zone: Zone): string {
  const { year, month, day: ofMonth } = parts(new Date(at), zone);
  return `${year}-${two(month + 1)}-${two(ofMonth)}`;
}

function parts(date: Date, zone: Zone) {
  return zone === "UTC"
    ? {
        year: date.getUTCFullYear(),
        month: date.getUTCMonth(),
        day: date.getUTCDate(),
        hours: date.getUTCHours(),
        minutes: date.getUTCMinutes(),
        seconds: date.getUTCSeconds(),
      }
    : {
        year: date.getFullYear(),
        month: date.getMonth(),
        day: date.getDate(),
        hours: date.getHours(),
        minutes: date.getMinutes(),
        seconds: date.getSeconds(),
      };
}

/** A text of a stranger: what cannot be seen, or would change the direction of the line, is written out. */
export function visible(text: string): string {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\p{Cs}/gu,
    (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`,
  );
}

/** At most `most` characters: the middle is left out. */
export function middle(text: string, most: number): string {
  const characters = text.length > 4 * most ? [...text.slice(0, 2 * most), ...text.slice(-2 * most)] : [...text];
  if (characters.length <= most) return text;
  const end = Math.floor((most - 1) / 2);
  return `${characters.slice(0, most - 1 - end).join("")}…${characters.slice(characters.length - end).join("")}`;
}

/** A number with what is counted, which may go on with a verb: `1 node is`, `3 nodes are`. */
export const plural = (n: number | null | undefined, one: string, many = `${one}s`): string =>
  `${count(n)} ${n === 1 ? one : many}`;

/** Reasons and states as sentences have them: `queue_full_messages` → `queue full messages`. */
export const words = (name: string): string => name.replaceAll("_", " ");
