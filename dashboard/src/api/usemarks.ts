import { useRef } from "preact/hooks";
import { add, happened, type Mark } from "./marks";
import { clusterNow } from "./clock";
import { usePolled } from "./poll";

/** What has happened to the nodes in the last hour; none while that is not known. */
export function useMarks(): readonly Mark[] {
  const marks = useRef<Mark[]>([]);
  const position = useRef<string | null>(null);
  const polled = usePolled(
    async (abort) => {
      const now = clusterNow() / 1000;
      const news = await happened(position.current, now, abort);
      position.current = news.position;
      marks.current = add(marks.current, news.events, now);
      return marks.current;
    },
    10_000,
    [],
  );
  return polled.value ?? none;
}

const none: readonly Mark[] = [];
