// A change of users, groups or rules in a dialog: what it would do is asked and said before it can be made, and the command that makes the
// same change stands below. A record that somebody else has changed meanwhile is read again; what was typed stays.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { AccessEffects } from "../api/api.types";
import { ApiError, fill, get, problemOf, send, type Problem } from "../api/api";
import { Confirm, Dialog } from "../parts/dialog";
import { plural, visible } from "../words/format";
import { Failed } from "../parts/notices";
import { effectsSay, mistakesOf } from "./words";

export interface Plan {
  method: "POST" | "PUT" | "DELETE";
  /** Filled, without the prefix of the API. */
  path: string;
  body?: unknown;
  /** The body of the dry run, where that is another one: a password is sent only when it is to be set. */
  dryBody?: unknown;
  /** The ETag that the record must have. */
  ifMatch?: string | undefined;
}

const headersOf = ({ ifMatch }: Plan): Record<string, string> => (ifMatch ? { "If-Match": ifMatch } : {});

export interface DryRun {
  effects: AccessEffects | null;
  problem: Problem | null;
  again(): void;
}

/** Asks what a change would do, `afterMs` after it was last typed at. `null`: nothing is asked yet. */
export function useDryRun(plan: Plan | null, afterMs = 300): DryRun {
  const [state, setState] = useState<{ of: string; effects: AccessEffects | null; problem: Problem | null } | null>(
    null,
  );
  const [times, setTimes] = useState(0);
  const question = JSON.stringify(plan && [plan.method, plan.path, plan.dryBody ?? plan.body, plan.ifMatch]);
  useEffect(() => {
    if (plan === null) return setState(null);
    const abort = new AbortController();
    const timer = setTimeout(() => {
      send<AccessEffects>(plan.method, fill(plan.path, { dry_run: true }), {
        body: plan.dryBody ?? plan.body,
        abort: abort.signal,
        headers: headersOf(plan),
      }).then(
        ({ answer }) => setState({ of: question, effects: answer, problem: null }),
        (error) => {
          if (!abort.signal.aborted) setState({ of: question, effects: null, problem: problemOf(error) });
        },
      );
    }, afterMs);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [question, times]);
  // What was answered to another question is not shown.
  const current = state?.of === question ? state : null;
  return {
    effects: current?.effects ?? null,
    problem: current?.problem ?? null,
    again: () => {
      setState(null);
      setTimes(times + 1);
    },
  };
}

const isMetByAnother = (problem: Problem | null) => problem?.type.endsWith(":precondition-failed") ?? false;
/** The record may have been changed without an answer. */
const isUnknown = (problem: Problem | null) => problem !== null && (problem.status === 0 || problem.status === 504);

/** Nodes at which a change does not count yet, by name. */
async function missingNodes(headers: Headers): Promise<string[]> {
  const ids =
    headers
      .get("Control-Missing")
      ?.split(",")
      .map((id) => id.trim()) ?? [];
  if (ids.length === 0) return [];
  const nodes = await get("/nodes").then(
    (page) => page.items,
    () => [],
  );
  return ids.map((id) => visible(nodes.find((node) => node.node === id)?.node_name ?? id));
}

interface ChangeProps {
  title: string;
  /** On the button. */
  deed: string;
  /** "user", "group", "list of rules". */
  what: string;
  /** What the change does to a record that exists, if "replaces the user" is not the word. */
  does?: string;
  /** Whether it can disconnect clients; `true` if it is not given. */
  clients?: boolean;
  /** `null`: something is missing in the form. */
  plan: Plan | null;
  command: string;
  /** What has to be said besides the command. */
  hint?: string;
  danger?: boolean;
  /** Said after it was made. */
  says: string;
  done(what: string, answer: unknown): void;
  close(): void;
  /** Reads the record again; what was typed stays. */
  reread?: (() => Promise<unknown>) | undefined;
  onDryRun?(problem: Problem | null): void;
  children?: ComponentChildren;
}

export function Change({
  title,
  deed,
  what,
  does,
  clients = true,
  plan,
  command,
  hint,
  danger,
  says,
  done,
  close,
  reread,
  onDryRun,
  children,
}: ChangeProps) {
  const dry = useDryRun(plan);
  const [failed, setFailed] = useState<Problem | null>(null);
  const [unread, setUnread] = useState<Problem | null>(null);
  const [reads, setReads] = useState(0);
  useEffect(() => onDryRun?.(dry.problem), [dry.problem]);
  const changed = [dry.problem, failed].some(isMetByAnother);
  const again = reread && (changed || isUnknown(failed)) ? reread : undefined;
  async function readAgain() {
    try {
      await again!();
      setFailed(null);
      setUnread(null);
      setReads(reads + 1);
      dry.again();
    } catch (error) {
      setUnread(problemOf(error));
    }
  }
  async function act() {
    const { method, path, body } = plan!;
    try {
      const { answer, headers } = await send<unknown>(method, path, { body, headers: headersOf(plan!) });
      const missing = await missingNodes(headers);
      done(missing.length === 0 ? says : `${says} It is not in force yet at ${missing.join(", ")}.`, answer);
    } catch (error) {
      if (error instanceof ApiError) setFailed(error.problem);
      throw error;
    }
  }
  const ends = clients && dry.effects !== null && dry.effects.clients_ended !== 0;
  return (
    <Confirm
      key={reads}
      title={title}
      deed={deed}
      danger={danger || ends}
      disabled={dry.effects === null || dry.effects.would === "keep"}
      act={act}
      close={close}
    >
      {children}
      {again && (
        <div class="notice warn" role="status">
          <span class="notice-text">
            {changed
              ? "Somebody else has changed this since you opened it."
              : "It is not known whether the change was made."}{" "}
            What you have typed stays.
          </span>
          <button type="button" onClick={() => void readAgain()}>
            Read it again
          </button>
        </div>
      )}
      {unread && <Failed problem={unread} />}
      <WhatItDoes plan={plan} dry={dry} what={what} does={does} clients={clients} />
      <AsCommand command={command} hint={hint} />
    </Confirm>
  );
}

const isRetried = (problem: Problem) => problem.status === 0 || problem.status === 429 || problem.status >= 500;

/** The input that has the focus when its dialog opens, where that would be on *Cancel*. */
export function useFirst() {
  const first = useRef<HTMLInputElement>(null);
  useEffect(() => first.current?.focus(), []);
  return first;
}

export function WhatItDoes({
  plan,
  dry,
  what,
  does,
  clients = true,
}: {
  plan: Plan | null;
  dry: DryRun;
  what: string;
  does?: string | undefined;
  clients?: boolean;
}) {
  // They stand at their lines already.
  const mistakes = mistakesOf(dry.problem).length;
  return (
    <>
      {dry.problem && mistakes === 0 && (
        <Failed problem={dry.problem} again={isRetried(dry.problem) ? dry.again : undefined} />
      )}
      <p class="what-it-does" role="status">
        {dry.effects ? (
          <strong>{effectsSay(dry.effects, what, does, clients)}</strong>
        ) : mistakes > 0 ? (
          `The rules have ${plural(mistakes, "mistake")}, so the broker would refuse this change.`
        ) : dry.problem ? (
          isRetried(dry.problem) ? (
            "What this would do is not known."
          ) : dry.problem.reason === "last_administrator" ? (
            "The broker would refuse this change: add another administrator first."
          ) : (
            "The broker would refuse this change."
          )
        ) : plan ? (
          "Asking what this would do …"
        ) : (
          "What the change does is said here when the form is complete."
        )}
      </p>
    </>
  );
}

const longest = 2000;

export function AsCommand({ command, hint }: { command: string; hint?: string | undefined }) {
  if (command.length > longest)
    return (
      <p class="soft small">
        The command is too long to show; <code>{command.split(" ").slice(0, 2).join(" ")} --help</code> has its options.
      </p>
    );
  return (
    <div class="command-line">
      <span class="soft small">The same as a command{hint && `; ${hint}`}:</span>
      <code>{visible(command)}</code>
      <Copy text={command} />
    </div>
  );
}

/** Browsers let a page copy only if it came by HTTPS or from this machine. */
export function Copy({ text, onCopied }: { text: string; onCopied?(): void }) {
  const [says, setSays] = useState("Copy");
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      setSays("Copied");
      onCopied?.();
    } catch {
      setSays("Select it and copy");
    }
    timer.current = setTimeout(() => setSays("Copy"), 3000);
  }
  return (
    <button type="button" onClick={() => void copy()}>
      {says}
    </button>
  );
}

/** What the broker has made, such as a secret: this is the only time that anybody sees it. */
export function ShownOnce({
  title,
  secret,
  close,
  children,
}: {
  title: string;
  secret: string;
  close(): void;
  children: ComponentChildren;
}) {
  return (
    <Dialog title={title} close={close}>
      {children}
      <div class="command-line">
        <code data-secret>{secret}</code>
        <Copy text={secret} />
      </div>
      <div class="buttons">
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

export function Secret({ name, secret, close }: { name: string; secret: string; close(): void }) {
  return (
    <ShownOnce title={`The secret of ${visible(name).slice(0, 60)}`} secret={secret} close={close}>
      <p>
        The client sends it as its MQTT password. It is not shown again: the broker keeps only its SHA-256. If it is
        lost, generate another one.
      </p>
    </ShownOnce>
  );
}
