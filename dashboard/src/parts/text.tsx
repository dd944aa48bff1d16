// Words and figures on a page: identifiers, moments, states, links.
import type { ComponentChildren } from "preact";
import { second, secondsSince, showTime } from "../api/clock";
import { duration, middle, unknown, visible, words } from "../words/format";
import { link } from "../navigation/route";

/** An identifier, topic or filter: foreign text, cut in the middle; `y` copies the whole. */
export function Foreign({ text, most = 36, href }: { text: string; most?: number; href?: string }) {
  const shown = middle(visible(text), most);
  const title = shown === text ? undefined : visible(text.slice(0, 1000));
  return href ? (
    <a class="foreign" href={href} title={title} data-copy={text}>
      {shown || "(empty)"}
    </a>
  ) : (
    <span class="foreign" title={title} data-copy={text}>
      {shown || "(empty)"}
    </span>
  );
}

export const ClientLink = ({ id, most = 36, tab }: { id: string; most?: number; tab?: string }) => (
  <Foreign text={id} most={most} href={link("client", { id, tab })} />
);
/** To who gets the topic; `more`: and why a client does not. */
export const TopicLink = ({
  topic,
  most = 48,
  more,
}: {
  topic: string;
  most?: number;
  more?: Record<string, string>;
}) => <Foreign text={topic} most={most} href={link("topics", { topic, ...more })} />;

export function Moment({ at }: { at: string | null | undefined }) {
  return at == null ? (
    unknown
  ) : (
    <time dateTime={at} title={at}>
      {showTime(at)}
    </time>
  );
}

/** How long ago it was; counts on by itself. */
export function Ago({ at }: { at: string | null | undefined }) {
  void second.value;
  return at == null ? (
    unknown
  ) : (
    <time dateTime={at} title={at}>
      {duration(secondsSince(at))}
    </time>
  );
}

const shapes: Record<string, [string, string]> = {
  connected: ["●", "good"],
  up: ["●", "good"],
  ok: ["●", "good"],
  delivered: ["✓", "good"],
  queued: ["✓", "good"],
  away: ["○", ""],
  connecting: ["○", ""],
  closing: ["○", ""],
  joining: ["○", ""],
  one_of: ["◇", ""],
  draining: ["▲", "warn"],
  leaving: ["▲", "warn"],
  stopping: ["▲", "warn"],
  suspect: ["!", "warn"],
  silent: ["!", "warn"],
  full: ["!", "warn"],
  degraded: ["!", "warn"],
  down: ["✕", "bad"],
  dropped: ["✕", "bad"],
  unavailable: ["✕", "bad"],
  refused: ["✕", "bad"],
};

/** A state: a shape, a word, and a colour only if it wants action. */
export function State({ is, say }: { is: string; say?: string }) {
  const [shape, tone] = shapes[is] ?? ["○", ""];
  return (
    <span class={`state ${tone}`}>
      <span aria-hidden="true">{shape}</span> {say ?? words(is)}
    </span>
  );
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** How full something is. */
export function Bar({ part }: { part: number | null }) {
  const filled = part == null ? 0 : Math.max(0, Math.min(1, part));
  return (
    <span class={`bar ${filled >= 0.9 ? "full" : ""}`} aria-hidden="true">
      <span style={{ width: `${filled * 100}%` }} />
    </span>
  );
}
