// Pages of a list: the cursors of those that were passed are kept, so that back works.
import { useEffect, useState } from "preact/hooks";
import { usePolled, type Polled } from "../api/poll";
import { back, forward } from "../api/cursors";
import { plural } from "../words/format";

export interface Page<Row> {
  items: Row[];
  next: string | null;
}

export interface Pages<Row> extends Polled<Page<Row>> {
  number: number;
  /** `null`: there is none. */
  back: (() => void) | null;
  forward: (() => void) | null;
}

export function usePages<Row>(
  load: (after: string | undefined, abort: AbortSignal) => Promise<Page<Row>>,
  everyMs: number,
  dependencies: unknown[],
): Pages<Row> {
  const [cursors, setCursors] = useState<string[]>([]);
  const question = dependencies.join("\0");
  const [asked, setAsked] = useState(question);
  const current = asked === question ? cursors : [];
  useEffect(() => {
    setAsked(question);
    setCursors([]);
  }, [question]);
  const polled = usePolled((abort) => load(current.at(-1), abort), everyMs, [question, current.at(-1)]);
  const next = polled.value?.next ?? null;
  return {
    ...polled,
    number: current.length + 1,
    back: current.length > 0 ? () => setCursors(back(current)) : null,
    forward: next !== null ? () => setCursors(forward(current, next)) : null,
  };
}

/** `[` and `]` press these buttons. */
export function Pager({ pages, what, many = `${what}s` }: { pages: Pages<unknown>; what: string; many?: string }) {
  if (pages.value === null || (!pages.back && !pages.forward)) return null;
  const shown = pages.value.items.length;
  return (
    <nav class="pager" aria-label={`pages of ${many}`}>
      <button type="button" data-key="[" disabled={!pages.back} onClick={() => pages.back?.()}>
        Previous
      </button>
      <span>
        page {pages.number} · {plural(shown, what, many)}
        {pages.forward ? ", more follow" : ""}
      </span>
      <button type="button" data-key="]" disabled={!pages.forward} onClick={() => pages.forward?.()}>
        Next
      </button>
    </nav>
  );
}
