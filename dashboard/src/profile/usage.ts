// What threads have used between two answers of a node, and what takes its memory.
import type { MemoryProfile, MemoryRow, ThreadsUsage, ThreadUsageRow, TurnTimes } from "../api/api.types";

export interface ThreadUse {
  id: number;
  name: string;
  /** Cores. */
  cpu: number;
  /** Of the time in which the thread could run and had no core, as cores; `null`: not known. */
  noCore: number | null;
  wakeUpsPerS: number | null;
  /** `null`: it runs no event loop. */
  turnsPerS: number | null;
  /** In ms, an upper bound; `null`: there was no turn, or it runs no event loop; `Infinity`: longer than the node measures. */
  longestTurnMs: number | null;
}

/** How long the node's two answers are apart, in seconds. */
export const secondsBetween = (first: ThreadsUsage, last: ThreadsUsage): number =>
  (last.uptime_us - first.uptime_us) / 1e6;

/** The threads of the last answer, those first that used most. `null`: the answers are of the same moment, or of two processes. */
export function usesBetween(first: ThreadsUsage, last: ThreadsUsage): ThreadUse[] | null {
  const seconds = secondsBetween(first, last);
  if (first.node !== last.node || !(seconds > 0)) return null;
  const before = new Map(first.threads.map((row) => [row.id, row]));
  return last.threads
    .map((row) => {
      // A thread that began meanwhile had used nothing; one of another name has got the number of one that has ended.
      const earlier = before.get(row.id);
      return use(row, earlier?.name === row.name ? earlier : null, seconds);
    })
    .sort((a, b) => b.cpu - a.cpu);
}

function use(row: ThreadUsageRow, earlier: ThreadUsageRow | null, seconds: number): ThreadUse {
  const since = (now: number | null, then: number | null | undefined) =>
    now === null ? null : Math.max(0, now - (then ?? 0)) / seconds;
  const turns = row.turns && grown(row.turns, earlier?.turns ?? []);
  const noCore = since(row.no_core_us, earlier?.no_core_us);
  const longest = turns?.at(-1);
  return {
    id: row.id,
    name: row.name,
    cpu: since(row.cpu_us, earlier?.cpu_us)! / 1e6,
    noCore: noCore === null ? null : noCore / 1e6,
    wakeUpsPerS: since(row.wake_ups, earlier?.wake_ups),
    turnsPerS: turns && turns.reduce((sum, { count }) => sum + count, 0) / seconds,
    longestTurnMs: longest ? (longest.up_to_ms ?? Infinity) : null,
  };
}

/** The buckets that have grown, the shortest first. */
function grown(now: TurnTimes[], then: TurnTimes[]): TurnTimes[] {
  const before = new Map(then.map(({ up_to_ms, count }) => [up_to_ms, count]));
  return now
    .map(({ up_to_ms, count }) => ({ up_to_ms, count: count - (before.get(up_to_ms) ?? 0) }))
    .filter(({ count }) => count > 0);
}

/** What the threads had used up to a minute before an answer, or at the start of the process: nothing. */
export function before({ earlier, ...usage }: ThreadsUsage): ThreadsUsage {
  return { ...usage, uptime_us: earlier?.uptime_us ?? 0, threads: earlier?.threads ?? [], earlier: null };
}

/** What takes memory, the largest first, without what takes none. */
export const structures = ({ structures }: MemoryProfile): MemoryRow[] =>
  structures.filter((row) => row.bytes !== 0).sort((a, b) => b.bytes - a.bytes);

export const sumOf = ({ structures }: MemoryProfile): number => structures.reduce((sum, row) => sum + row.bytes, 0);
