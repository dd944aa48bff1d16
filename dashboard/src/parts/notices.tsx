// The head of a page, and below it what is wrong with what it shows.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Missing } from "../api/api.types";
import { apiUrl, missingOf, type Problem } from "../api/api";
import { second } from "../api/clock";
import { json, quote } from "../words/command";
import { duration, time, visible, words } from "../words/format";
import { paused, type Polled } from "../api/poll";
import { zone } from "../navigation/preferences";

interface HeadProps {
  title: string;
  /** The answer to the page's question. */
  children?: ComponentChildren;
  polled?: Polled<unknown>;
  /** The request that filled the page, without the prefix of the API, and the command that says the same. */
  request?: string;
  body?: unknown;
  command?: string;
  actions?: ComponentChildren;
}

export function Head({ title, children, polled, request, body, command, actions }: HeadProps) {
  return (
    <>
      <header class="head">
        <h1>{title}</h1>
        <p class="answer">{children}</p>
        <div class="head-end">
          {actions}
          {request && <AsCommand request={request} body={body} command={command} />}
          {polled && <AsOf polled={polled} />}
        </div>
      </header>
      {polled && <Notices polled={polled} />}
    </>
  );
}

export const isStale = (polled: Polled<unknown>): boolean =>
  polled.value !== null && polled.problem !== null && Date.now() - (polled.at ?? 0) > 2 * polled.everyMs;

function AsOf({ polled }: { polled: Polled<unknown> }) {
  void second.value;
  if (polled.at === null) return <span class="as-of" />;
  const age = Math.round((Date.now() - polled.at) / 1000);
  const old = age * 1000 > 2 * polled.everyMs && !paused.value;
  return (
    <span class="as-of">
      as of {time(polled.at, Date.now(), zone.value)}
      {old && polled.problem ? `, ${duration(age)} ago · reconnecting` : ""}
    </span>
  );
}

export function Notices({ polled }: { polled: Polled<unknown> }) {
  return (
    <>
      {polled.problem && <Failed problem={polled.problem} again={polled.again} />}
      <Partial missing={missingOf(polled.value)} again={polled.again} />
    </>
  );
}

const reasons: Record<string, string> = {
  down: "is down",
  timeout: "did not answer in time",
  busy: "is busy",
  version: "runs a version that cannot answer",
  failed: "failed to answer",
  no_leader: "has no leader",
};

export function Partial({ missing, again }: { missing: Missing[]; again?: () => void }) {
  if (missing.length === 0) return null;
  return (
    <div class="notice warn" role="status">
      <span class="notice-text">
        {missing.map((one) => (
          <span key={one.node ?? one.missing.join()}>
            <strong>{one.node_name ? visible(one.node_name) : (one.node ?? "A shard")}</strong>{" "}
            {reasons[one.reason] ?? words(one.reason)}
            {one.missing.length > 0 && `, so this page does not show its ${one.missing.map(words).join(", ")}`}.{" "}
          </span>
        ))}
      </span>
      {again && (
        <button type="button" onClick={again}>
          Retry
        </button>
      )}
    </div>
  );
}

export function Failed({ problem, again }: { problem: Problem; again?: (() => void) | undefined }) {
  // The dialogs for signing in, and for another password, say it.
  if ((problem.status === 401 && !problem.type.endsWith(":login-failed")) || problem.reason === "password_change")
    return null;
  return (
    <div class="notice bad" role="alert">
      <span class="notice-text">
        <strong>{visible(problem.title)}.</strong> {visible(problem.detail)}
        {problem.instance && <span class="soft"> Request {problem.instance.split(":").pop()}.</span>}
      </span>
      {again && (
        <button type="button" onClick={again}>
          Retry
        </button>
      )}
    </div>
  );
}

function AsCommand({ request, body, command }: Pick<HeadProps, "request" | "body" | "command">) {
  const [open, setOpen] = useState(false);
  const data = body === undefined ? "" : ` -H 'Content-Type: application/json' -d ${quote(json(body))}`;
  const texts = [
    `curl -H "Authorization: Bearer $KEY"${data} ${quote(apiUrl(request!))}`,
    ...(command ? [command] : []),
  ];
  return (
    <span class="as-command">
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        As command
      </button>
      {open && (
        <span class="command-box">
          {texts.map((text) => (
            <code key={text}>
              {text.length > 2000 ? "The identifier is too long to show as a command." : visible(text)}
            </code>
          ))}
        </span>
      )}
    </span>
  );
}

/** What was done, or is under way. */
export const Told = ({ children }: { children?: string | null | undefined }) => (
  <p class={children ? "notice told" : "said"} role="status">
    {children}
  </p>
);

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}
