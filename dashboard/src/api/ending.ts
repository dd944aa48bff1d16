// When a login ends, by itself: after half an hour without a request, or half a day after it began.

const idleMs = 30 * 60_000;
const warningMs = 60_000;

export interface Ending {
  why: "idle" | "age";
  at: number;
}

/** The end that is a minute away at most. `usedAt`: when a request was answered last; `endsAt`: as the broker says. */
export function ending(usedAt: number, endsAt: number | null, now: number): Ending | null {
  const [idle, age] = [usedAt + idleMs, endsAt ?? Infinity];
  const first: Ending = age <= idle ? { why: "age", at: age } : { why: "idle", at: idle };
  return first.at - now <= warningMs && first.at > now ? first : null;
}
