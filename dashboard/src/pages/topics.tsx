// Who gets this topic, and why not the others?
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Match, MatchRequest, Receiver, Verdict } from "../api/api.types";
import { post, problemOf, type Problem } from "../api/api";
import { commandOf } from "../words/command";
import { count, middle, plural, visible, words } from "../words/format";
import { Empty, Failed, Head, Partial } from "../parts/notices";
import { reasonName } from "../words/reasons";
import { link, replaceParameters, route } from "../navigation/route";
import { Table } from "../parts/table";
import { ClientLink, Foreign, State } from "../parts/text";

const fields = ["topic", "qos", "from", "user", "why"] as const;
const most = 500;

const requestOf = (asked: Record<string, string>): MatchRequest => ({
  topic: asked.topic ?? "",
  qos: Number(asked.qos ?? 1),
  publisher: asked.from || null,
  publisher_user: asked.user || null,
  clients: asked.why ? [asked.why] : [],
  limit: most,
});

export function Topics() {
  const asked = route.value.parameters;
  const [answer, setAnswer] = useState<Match | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const question = JSON.stringify(requestOf(asked));
  function ask() {
    post("/match", requestOf(asked)).then(
      (match) => {
        setAnswer(match);
        setProblem(null);
      },
      (error) => {
        setAnswer(null);
        setProblem(problemOf(error));
      },
    );
  }
  useEffect(() => {
    setAnswer(null);
    setProblem(null);
    if (asked.topic) ask();
  }, [question]);
  const command = commandOf("match", [asked.topic], {
    qos: asked.qos ?? "1",
    publisher: asked.from,
    "publisher-user": asked.from ? asked.user : undefined,
    why: asked.why,
  });
  return (
    <>
      <Head title="Topics" {...(asked.topic ? { request: "/match", body: requestOf(asked), command } : {})}>
        {answer
          ? sentence(answer)
          : asked.topic
            ? ""
            : "Enter a topic to see which clients would receive a message now, and why others would not. Nothing is published."}
      </Head>
      <Question asked={asked} again={ask} />
      {problem && <Failed problem={problem} again={ask} />}
      {answer && <Answer answer={answer} why={asked.why} again={ask} />}
    </>
  );
}

function Question({ asked, again }: { asked: Record<string, string>; again(): void }) {
  const [draft, setDraft] = useState<Record<string, string>>(asked);
  useEffect(() => setDraft(asked), [JSON.stringify(asked)]);
  // Whoever comes without a whole question goes on with it; on a touch screen, that would open the keyboard.
  const [topic, why] = [useRef<HTMLInputElement>(null), useRef<HTMLInputElement>(null)];
  useLayoutEffect(() => {
    if (!asked.why && matchMedia("(pointer: fine)").matches) (asked.topic ? why : topic).current?.focus();
  }, []);
  const set = (name: string) => (event: { currentTarget: { value: string } }) =>
    setDraft({ ...draft, [name]: event.currentTarget.value });
  function submit(event: Event) {
    event.preventDefault();
    if (fields.every((name) => (draft[name] ?? "") === (asked[name] ?? ""))) again();
    else replaceParameters(draft);
  }
  return (
    <form class="filters" onSubmit={submit}>
      <label class="field wide">
        Topic
        <input ref={topic} value={draft.topic ?? ""} onInput={set("topic")} autocomplete="off" spellcheck={false} />
      </label>
      <label class="field narrow">
        QoS
        <select value={draft.qos ?? "1"} onChange={set("qos")}>
          {["0", "1", "2"].map((qos) => (
            <option key={qos}>{qos}</option>
          ))}
        </select>
      </label>
      <label class="field">
        From client
        <input value={draft.from ?? ""} onInput={set("from")} autocomplete="off" spellcheck={false} />
      </label>
      <label class="field">
        As user
        <input
          value={draft.user ?? ""}
          onInput={set("user")}
          disabled={!draft.from}
          autocomplete="off"
          spellcheck={false}
        />
      </label>
      <label class="field">
        Explain for client
        <input ref={why} value={draft.why ?? ""} onInput={set("why")} autocomplete="off" spellcheck={false} />
      </label>
      <button type="submit" class="primary" disabled={!draft.topic}>
        Ask
      </button>
    </form>
  );
}

const rule = (verdict: Verdict | null) =>
  verdict?.by === "file" && verdict.line !== null ? `rule in line ${verdict.line}` : verdict ? words(verdict.by) : "";

function sentence({ topic, counts, publisher, counted_all }: Match) {
  const least = counted_all ? "" : "at least ";
  const all = counts.delivered + counts.queued + counts.dropped;
  const may = publisher?.verdict
    ? ` ${visible(publisher.client_id).slice(0, 60)} ${publisher.verdict.may ? "may" : "may not"} publish it (${publisher.verdict.by === "no_match" ? "no rule matches" : rule(publisher.verdict)}${publisher.known_by === "nothing" ? "; the client is not connected and has no session, so the rules were checked as for a client without a user" : ""}).`
    : "";
  if (all + counts.groups === 0)
    return (
      <>
        <Foreign text={topic} /> reaches no client: no subscription matches.{may}
      </>
    );
  return (
    <>
      <Foreign text={topic} /> reaches {least}
      {count(counts.delivered + counts.queued)} of {plural(all, "receiver")}
      {counts.groups > 0 &&
        ` and one member of ${counts.groups === 1 ? "a shared group" : `each of ${count(counts.groups)} shared groups`}`}
      {counts.queued > 0 &&
        `; ${plural(counts.queued, "of them is away and gets it when it reconnects", "of them are away and get it when they reconnect")}`}
      {counts.dropped > 0 && (
        <>
          ; <strong>{count(counts.dropped)} would drop it</strong>
        </>
      )}
      .{may}
    </>
  );
}

const order = { dropped: 0, queued: 1, one_of: 2, delivered: 3 };

function Answer({ answer, why, again }: { answer: Match; why: string | undefined; again(): void }) {
  const rows = [...answer.receivers].sort((a, b) => order[a.outcome] - order[b.outcome]);
  const reached = rows.find((row) => row.client_id === why);
  return (
    <>
      <Partial missing={answer.partial} again={again} />
      {answer.not.map((not) => (
        <p key={not.client_id} class="notice warn">
          <span class="notice-text">
            <strong>
              <ClientLink id={not.client_id} />
            </strong>{" "}
            does not get it: {visible(not.detail)}.
            {not.closest_filter !== null && (
              <>
                {" "}
                Its closest filter is <Foreign text={not.closest_filter} />.
              </>
            )}
          </span>
        </p>
      ))}
      {why && reached && answer.not.length === 0 && (
        <p>
          <ClientLink id={why} />{" "}
          {reached.outcome === "dropped" ? "matches, but the message would be dropped" : "gets it"}, by{" "}
          <Foreign text={reached.filter} />.
        </p>
      )}
      {rows.length > 0 && (
        <Table
          label="Receivers"
          open={!answer.counted_all}
          rows={rows}
          keyOf={(row) => `${row.client_id} ${row.group}`}
          columns={[
            { head: "Receiver", width: 26, cell: receiver },
            {
              head: "Outcome",
              width: 13,
              cell: (row) => (
                <State is={row.outcome} say={row.outcome === "one_of" ? `one of ${count(row.members)}` : row.outcome} />
              ),
            },
            {
              head: "Why",
              cell: (row) =>
                [
                  row.reason && reasonName(row.reason),
                  row.detail !== null && visible(row.detail),
                  rule(row.rule),
                  row.outcome === "queued" && "the client is away; the message waits in its queue",
                ]
                  .filter(Boolean)
                  .join(" · "),
            },
            { head: "Filter", width: 24, cell: (row) => <Foreign text={row.filter} most={22} /> },
            { head: "QoS", width: 6, figure: true, cell: (row) => row.qos },
            {
              head: "Node",
              width: 9,
              cell: (row) => (row.node_name ? visible(row.node_name) : row.state === "away" ? "away" : ""),
            },
          ]}
        />
      )}
      {answer.receivers.length >= most && (
        <Empty>The first {plural(most, "receiver is", "receivers are")} shown.</Empty>
      )}
    </>
  );
}

const receiver = (row: Receiver) =>
  row.client_id !== null ? (
    <ClientLink id={row.client_id} most={24} />
  ) : (
    <a class="foreign" href={link("shared-groups", { group: row.group ?? "" })}>
      {middle(visible(row.group ?? ""), 24)}
    </a>
  );
