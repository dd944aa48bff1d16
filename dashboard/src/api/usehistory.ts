import { useRef } from "preact/hooks";
import type { History } from "./api.types";
import { get } from "./api";
import { merge, type Series } from "./history";
import { usePolled } from "./poll";

type Load = (since: string | undefined, abort: AbortSignal) => Promise<History>;

/** The last hour of the nodes. */
export const useHistory = () => useGrowing((since, abort) => get("/stats/history", { since }, {}, abort), "");

/** The last hour of a shard. */
export const useShardHistory = (store: string, shard: number) =>
  useGrowing(
    (since, abort) => get("/shards/{store}/{shard}/history", { since }, { store, shard: String(shard) }, abort),
    `${store} ${shard}`,
  );

/** It is asked for once, and then what came since; from the beginning for another `key`. */
function useGrowing(load: Load, key: string) {
  const known = useRef<{ key: string; series: Series | null }>({ key, series: null });
  const polled = usePolled(
    async (abort) => {
      const before = known.current.key === key ? known.current.series : null;
      // A little more than the last sample: a node that was late has its samples in the answers after.
      const since = before ? new Date(before.endMs - 3 * before.stepMs).toISOString() : undefined;
      const series = merge(before, await load(since, abort));
      known.current = { key, series };
      return series;
    },
    10_000,
    [key],
  );
  return { series: polled.value, problem: polled.problem };
}
