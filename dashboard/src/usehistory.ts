import { useRef } from "preact/hooks";
import { get } from "./api";
import { merge, type Series } from "./history";
import { usePolled } from "./poll";

/** The last hour; it is asked for once, and then what came since. */
export function useHistory() {
  const series = useRef<Series | null>(null);
  const polled = usePolled(async (abort) => {
    // A little more than the last sample: a node that was late has its samples in the answers after.
    const since = series.current ? new Date(series.current.endMs - 3 * series.current.stepMs).toISOString() : undefined;
    series.current = merge(series.current, await get("/stats/history", { since }, {}, abort));
    return series.current;
  }, 10_000, []);
  return { series: polled.value, problem: polled.problem };
}
