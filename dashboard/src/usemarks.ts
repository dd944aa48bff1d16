import { useRef } from "preact/hooks";
import { add, beginning, happened, isRefused, type Mark } from "./marks";
import { clusterNow } from "./clock";
import { usePolled } from "./poll";

/** What has happened to the nodes in the last hour; none while that is not known. */
export function useMarks(nodes: readonly string[] | undefined): readonly Mark[] {
  const marks = useRef<Mark[]>([]);
  const position = useRef<string | null>(null);
  const polled = usePolled(async (abort) => {
    if (!nodes) return marks.current;
    try {
      const news = await happened(position.current ?? beginning(nodes), abort);
      position.current = news.position;
      marks.current = add(marks.current, news.events, clusterNow() / 1000);
    } catch (error) {
      if (!isRefused(error)) throw error;
      position.current = (await happened(null, abort)).position;
    }
    return marks.current;
  }, 10_000, [nodes !== undefined]);
  return polled.value ?? none;
}

const none: readonly Mark[] = [];
