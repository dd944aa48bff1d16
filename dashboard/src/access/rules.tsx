// The rules for everybody: read with the numbers of their lines, and replaced as a whole if nobody else has changed them meanwhile.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { AccessRules } from "../api/api.types";
import { get } from "../api/api";
import { commandOf } from "../words/command";
import { Action } from "../parts/dialog";
import { count, plural, visible } from "../words/format";
import { Empty, Notices } from "../parts/notices";
import { usePolled } from "../api/poll";
import { Change, WhatItDoes, useDryRun, type Plan } from "./change";
import { Numbered } from "./numbered";
import { difference, etag, linesOf, mistakesOf, type Difference } from "./words";

/** What is typed, and the rules that it began with. It outlasts a look at another page. */
const draft = signal<{ base: AccessRules; text: string } | null>(null);

export function Rules({ done }: { done(what: string): void }) {
  const rules = usePolled((abort) => get("/rules", {}, {}, abort), 10_000, []);
  const now = rules.value;
  return (
    <>
      <Notices polled={rules} />
      {draft.value ? (
        <Editor
          now={now}
          look={rules.again}
          done={(what) => {
            done(what);
            rules.again();
          }}
        />
      ) : (
        now && (
          <>
            <p class="in-place">
              <Action needs="administrator" onClick={() => (draft.value = { base: now, text: now.lines.join("\n") })}>
                Change…
              </Action>
              <span class="soft small">
                Judged after the rules of the user and of its groups, and before the rule file of the node. The first
                rule that matches decides.
              </span>
            </p>
            {now.lines.length === 0 ? (
              <Empty>
                There are no rules for everybody. A line is for example <code>allow user "ann" publish plants/#</code>{" "}
                or <code>deny all subscribe #</code>.
              </Empty>
            ) : (
              <Numbered
                label={`Rules for everybody: ${plural(now.lines.length, "line")}`}
                value={now.lines.join("\n")}
                rows={Math.min(30, now.lines.length + 1)}
              />
            )}
          </>
        )
      )}
    </>
  );
}

function Editor({ now, look, done }: { now: AccessRules | null; look(): void; done(what: string): void }) {
  const [asked, setAsked] = useState(false);
  const { base, text } = draft.value!;
  const lines = linesOf(text);
  const differs = difference(base.lines, lines);
  const plan: Plan | null = differs && { method: "PUT", path: "/rules", body: { lines }, ifMatch: etag(base.revision) };
  const dry = useDryRun(asked ? null : plan, 500);
  const theirs = now !== null && now.revision !== base.revision ? now : null;
  const isRefused = dry.problem?.type.endsWith(":precondition-failed") ?? false;
  useEffect(() => {
    if (isRefused) look();
  }, [isRefused]);
  const set = (typed: string) => (draft.value = { base, text: typed });
  return (
    <>
      {theirs && (
        <Theirs
          base={base}
          theirs={theirs}
          keep={() => (draft.value = { base: theirs, text })}
          take={() => (draft.value = { base: theirs, text: theirs.lines.join("\n") })}
        />
      )}
      <Numbered
        label="Rules for everybody"
        hint='One a line, with WHO, such as: allow user "ann" publish plants/#'
        rows={20}
        value={text}
        set={set}
        mistakes={mistakesOf(dry.problem)}
      />
      {differs ? (
        <WhatItDoes
          plan={plan}
          dry={dry}
          what="list of rules"
          does="replaces the list of rules, also for connected clients"
        />
      ) : (
        <p class="what-it-does">Nothing is different yet.</p>
      )}
      <div class="buttons begin">
        <Action needs="administrator" disabled={!differs || dry.effects === null} onClick={() => setAsked(true)}>
          Replace the rules…
        </Action>
        <button type="button" onClick={() => (draft.value = null)}>
          Discard what was typed
        </button>
      </div>
      {asked && differs && (
        <Change
          title="Replace the rules for everybody?"
          deed="Replace the rules"
          what="list of rules"
          does="replaces the list of rules, also for connected clients"
          plan={plan}
          command={commandOf("rules set", ["FILE"])}
          hint="FILE has all lines"
          says="The rules for everybody were replaced."
          close={() => setAsked(false)}
          reread={async () => {
            look();
            setAsked(false);
          }}
          done={(what) => {
            draft.value = null;
            done(what);
          }}
        >
          <Lines of={differs} />
        </Change>
      )}
    </>
  );
}

/** Somebody else has changed the rules: what was typed stays, whatever is chosen. */
function Theirs({ base, theirs, keep, take }: { base: AccessRules; theirs: AccessRules; keep(): void; take(): void }) {
  const differs = difference(base.lines, theirs.lines);
  return (
    <div class="panel their-change" role="status">
      <p>
        <strong>Somebody else has changed the rules since you began.</strong>{" "}
        {differs
          ? "Below is what has changed; your text has not. Put into your text what you want of it, and go on."
          : "They are again as they were when you began."}
      </p>
      {differs && <Lines of={differs} />}
      <div class="buttons begin">
        <button type="button" onClick={keep}>
          Go on with my text
        </button>
        {differs && (
          <button type="button" onClick={take}>
            Discard my text, take theirs
          </button>
        )}
      </div>
    </div>
  );
}

const shown = 200;

function Lines({ of: { from, removed, added } }: { of: Difference }) {
  const all = [...removed.map((line) => `- ${visible(line)}`), ...added.map((line) => `+ ${visible(line)}`)];
  return (
    <>
      <p class="small">
        From line {count(from)}: {plural(removed.length, "line")} removed, {plural(added.length, "line")} added.
      </p>
      <pre class="payload" tabIndex={0} role="region" aria-label="What differs">
        {all.slice(0, shown).join("\n")}
        {all.length > shown && `\n… and ${count(all.length - shown)} more`}
      </pre>
    </>
  );
}
