// Rules as a text with the numbers of its lines; mistakes stand at their lines.
import { useLayoutEffect, useRef } from "preact/hooks";
import { count, plural, visible } from "../words/format";
import type { Mistake } from "./words";

interface NumberedProps {
  label: string;
  value: string;
  /** `undefined`: it can be read only. */
  set?: ((text: string) => void) | undefined;
  mistakes?: Mistake[];
  rows?: number;
  hint?: string;
}

const shown = 20;
let next = 0;

export function Numbered({ label, value, set, mistakes = [], rows = 6, hint }: NumberedProps) {
  const text = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLPreElement>(null);
  const id = useRef(`numbered-${next++}`).current;
  const lines = value.split("\n");
  const wrong = new Set(mistakes.map((mistake) => mistake.line));
  const width = String(lines.length).length;
  const numbers = lines.map((_, n) => `${wrong.has(n + 1) ? "✕" : " "}${String(n + 1).padStart(width)}`).join("\n");
  const follow = () => {
    if (gutter.current && text.current) gutter.current.scrollTop = text.current.scrollTop;
  };
  useLayoutEffect(follow);
  function goTo(line: number) {
    const begin = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    text.current?.focus();
    text.current?.setSelectionRange(begin, begin + (lines[line - 1]?.length ?? 0));
    if (text.current) text.current.scrollTop = (line - 3) * 20;
  }
  return (
    <div class="numbered">
      <label class="field" for={id}>
        {label}
        {hint && <span>{hint}</span>}
      </label>
      <div class="numbered-box">
        <pre ref={gutter} aria-hidden="true">
          {numbers}
        </pre>
        <textarea
          id={id}
          ref={text}
          rows={rows}
          wrap="off"
          spellcheck={false}
          autocapitalize="off"
          readOnly={!set}
          value={set ? value : lines.map(visible).join("\n")}
          onScroll={follow}
          aria-invalid={mistakes.length > 0}
          aria-describedby={mistakes.length > 0 ? `${id}-mistakes` : undefined}
          onInput={(event) => set?.(event.currentTarget.value)}
        />
      </div>
      {mistakes.length > 0 && (
        <ul class="mistakes" id={`${id}-mistakes`}>
          {mistakes.slice(0, shown).map((mistake) => (
            <li key={`${mistake.line} ${mistake.reason}`}>
              <button type="button" class="link" onClick={() => goTo(mistake.line)}>
                Line {count(mistake.line)}
              </button>
              : {visible(mistake.reason)}
            </li>
          ))}
          {mistakes.length > shown && <li>{plural(mistakes.length - shown, "more mistake")}.</li>}
        </ul>
      )}
    </div>
  );
}
