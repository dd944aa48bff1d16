// What a client may do, and which rule decides.
import { type Problem, post, problemOf } from "../../api/api";
import type { AclAnswer, AclRules } from "../../api/api.types";
import { usePolled } from "../../api/poll";
import { Empty, Failed, Notices } from "../../parts/notices";
import { Table } from "../../parts/table";
import { State } from "../../parts/text";
import { count, plural, visible, words } from "../../words/format";
import { useState } from "preact/hooks";

export function Rights({ id }: { id: string }) {
  const [action, setAction] = useState("publish");
  const [topic, setTopic] = useState("");
  const [answer, setAnswer] = useState<AclAnswer | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const rules = usePolled((abort) => post("/acl/rules", { client_id: id }, {}, abort), 30_000, [id]);
  async function ask(event: Event) {
    event.preventDefault();
    try {
      setAnswer(await post("/acl/test", { client_id: id, action, topic }));
      setProblem(null);
    } catch (error) {
      setProblem(problemOf(error));
    }
  }
  return (
    <>
      <form class="filters" onSubmit={ask}>
        <label class="field">
          Action
          <select value={action} onChange={(event) => setAction(event.currentTarget.value)}>
            {["publish", "retain", "subscribe", "receive"].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label class="field wide">
          Topic or filter
          <input value={topic} onInput={(event) => setTopic(event.currentTarget.value)} spellcheck={false} />
        </label>
        <button type="submit" disabled={topic === ""}>
          Test
        </button>
      </form>
      {problem && <Failed problem={problem} />}
      {answer && (
        <p>
          {answer.may ? <State is="ok" say="allowed" /> : <State is="refused" say="denied" />}:{" "}
          {decided[answer.by] ?? words(answer.by)}
          {answer.line !== null &&
            `, ${answer.by === "file" || answer.by === "list" ? "line" : "number"} ${answer.line}`}
          .
        </p>
      )}
      <h2 class="section-title">Rules that apply</h2>
      <Notices polled={rules} />
      {rules.value && <Rules found={rules.value} by={answer?.by ?? null} line={answer?.line ?? null} />}
    </>
  );
}

const decided: Record<string, string> = {
  superuser: "the client is a superuser",
  login: "by a rule from its login",
  list: "by the rules for everybody",
  file: "by the rule file",
  no_match: "no rule matches",
};

/** `by`, `line`: the rule that decided the test. */
function Rules({ found, by, line }: { found: AclRules; by: string | null; line: number | null }) {
  const end = found.no_match === "allow" ? "allowed" : "denied";
  if (found.superuser)
    return <p class="answer">The client is a superuser: its login allows everything, and no rule is checked.</p>;
  return (
    <>
      <p class="answer">
        {found.known_by === "nothing" &&
          "The client is not connected and has no session, so these are the rules for a client without a user and an address. "}
        {found.known_by === "session" &&
          "The client is away: its address is not known, so rules that name an address are not listed. "}
        {found.rules.length === 0
          ? "No rule for everybody and none of the rule file applies to this client: every action is "
          : "The first rule that matches an action and its topic decides. An action that no rule matches is "}
        {end} (<code>authorization.noMatch</code>).
        {found.known_by === "connection" &&
          " Rules that came with its login are checked first and are not listed here."}
      </p>
      {found.rules.length > 0 && (
        <Table
          label="Rules that apply"
          open={found.more}
          rows={found.rules}
          keyOf={(rule) => `${rule.by} ${rule.line}`}
          tone={(rule) => (rule.by === by && rule.line === line ? "chosen" : "")}
          columns={[
            { head: "From", width: 8, cell: (rule) => (rule.by === "list" ? "everybody" : "file") },
            { head: "Line", width: 8, figure: true, cell: (rule) => count(rule.line) },
            {
              head: "Rule",
              cell: (rule) => (
                <code class="wrap" data-copy={rule.text}>
                  {visible(rule.text)}
                </code>
              ),
            },
          ]}
        />
      )}
      {found.more && <Empty>The first {plural(found.rules.length, "rule is", "rules are")} shown.</Empty>}
    </>
  );
}
