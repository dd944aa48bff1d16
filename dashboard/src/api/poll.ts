// Asks again and again while the tab is seen and nothing is paused; after a failure at 1, 2, 4 … 30 s.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { problemOf, type Problem } from "./api";
import { me } from "./session";

export const paused = signal(false);

export interface Polled<T> {
  value: T | null;
  /** When the value came, by this browser's clock. */
  at: number | null;
  problem: Problem | null;
  everyMs: number;
  again(): void;
}

export const retryMs = (failures: number): number => Math.min(30_000, 1000 * 2 ** (failures - 1));

export function usePolled<T>(
  load: (abort: AbortSignal) => Promise<T>,
  everyMs: number,
  dependencies: unknown[],
): Polled<T> {
  const [state, setState] = useState<{ value: T | null; at: number | null; problem: Problem | null }>({
    value: null,
    at: null,
    problem: null,
  });
  const again = useRef(() => {});
  const interval = useRef(everyMs);
  interval.current = everyMs;
  useEffect(() => {
    setState({ value: null, at: null, problem: null });
    const loop = start(
      load,
      () => interval.current,
      (value) => setState({ value, at: Date.now(), problem: null }),
      (problem) => setState((old) => ({ ...old, problem })),
    );
    again.current = loop.again;
    return loop.end;
  }, dependencies);
  return useMemo(() => ({ ...state, everyMs, again: () => again.current() }), [state, everyMs]);
}

function start<T>(
  load: (abort: AbortSignal) => Promise<T>,
  everyMs: () => number,
  came: (value: T) => void,
  failed: (problem: Problem) => void,
) {
  const ended = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let [failures, asking, due] = [0, false, true];

  async function ask() {
    if (asking || ended.signal.aborted) return;
    clearTimeout(timer);
    [asking, due] = [true, false];
    try {
      const value = await load(ended.signal);
      failures = 0;
      if (!ended.signal.aborted) came(value);
    } catch (error) {
      failures++;
      if (!ended.signal.aborted) failed(problemOf(error));
    }
    asking = false;
    timer = setTimeout(
      () => {
        due = true;
        askIfSeen();
      },
      failures > 0 ? retryMs(failures) : everyMs(),
    );
  }
  function askIfSeen() {
    if (due && !document.hidden && !paused.value) void ask();
  }
  document.addEventListener("visibilitychange", askIfSeen);
  const signals = [
    paused.subscribe(askIfSeen),
    me.subscribe((who) => {
      if (who && failures > 0) void ask();
    }),
  ];
  // The first answer comes also while the page is paused.
  void ask();
  return {
    again: () => void ask(),
    end() {
      ended.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", askIfSeen);
      for (const stop of signals) stop();
    },
  };
}
