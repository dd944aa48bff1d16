// A branch of the tree of retained messages: how many messages it has, and their removal.
import { useEffect, useState } from "preact/hooks";
import { get, problemOf, remove, type Problem } from "../api/api";
import { branchOf, type Branch } from "../navigation/branch";
import { Action, Confirm } from "./dialog";
import { count, middle, plural, visible } from "../words/format";
import { Failed } from "./notices";

const load = (filter: string, after: string | undefined) => get("/retained", { filter, after, limit: 500 });

/** Messages that are counted, and that one dialog removes: each is a request. */
const most = { counted: 5_000, removed: 1_000 } as const;

export function BranchActions({ topic, gone }: { topic: string; gone(): void }) {
  const [found, setFound] = useState<Branch | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [asked, setAsked] = useState(false);
  const look = () =>
    branchOf(topic, most.counted, load).then(
      (branch) => {
        setFound(branch);
        setProblem(null);
      },
      (error) => setProblem(problemOf(error)),
    );
  return (
    <span class="branch-actions">
      {found ? (
        <span class="soft">
          {found.more ? "more than " : ""}
          {plural(found.topics.length, "message")}
        </span>
      ) : (
        <button type="button" class="quiet" onClick={look}>
          Count
        </button>
      )}
      {problem && <span class="state bad">{visible(problem.detail)}</span>}
      <Action quiet needs="operator" onClick={() => setAsked(true)}>
        Remove all…
      </Action>
      {asked && (
        <RemoveBranch
          topic={topic}
          close={() => setAsked(false)}
          done={() => {
            setFound(null);
            gone();
          }}
        />
      )}
    </span>
  );
}

function RemoveBranch({ topic, close, done }: { topic: string; close(): void; done(): void }) {
  const [branch, setBranch] = useState<Branch | null>(null);
  const [removed, setRemoved] = useState(0);
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => {
    branchOf(topic, most.removed, load).then(setBranch, (error) => setProblem(problemOf(error)));
  }, [topic]);
  async function act() {
    try {
      for (const one of branch?.topics ?? []) {
        await remove("/retained/message", { topic: one });
        setRemoved((before) => before + 1);
      }
    } finally {
      done();
    }
  }
  const size = branch?.topics.length ?? 0;
  return (
    <Confirm
      title={`Remove the retained messages at and below ${middle(visible(topic), 40)}?`}
      deed="Remove"
      danger
      typed={size > 1 ? String(size) : null}
      disabled={size === 0}
      act={act}
      close={close}
    >
      {problem && <Failed problem={problem} />}
      {branch && (
        <p>
          {plural(size, "message is", "messages are")} removed{branch.more && `, the first ${count(size)} of more`}.
          Subscribers get an empty message for each. This cannot be undone.
        </p>
      )}
      {removed > 0 && (
        <p role="status">
          {count(removed)} of {count(size)} removed.
        </p>
      )}
    </Confirm>
  );
}
