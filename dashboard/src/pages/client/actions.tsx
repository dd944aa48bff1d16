// What can be done with a client.
import { type Problem, post, problemOf } from "../../api/api";
import type { Client } from "../../api/api.types";
import { actOn } from "../../parts/actions";
import { Action, Confirm } from "../../parts/dialog";
import { middle, plural, visible } from "../../words/format";
import { useState } from "preact/hooks";

export function Actions({ id, client, done }: { id: string; client: Client; done(what: string): void }) {
  const [asked, setAsked] = useState<"disconnect" | "end" | "ban" | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const name = middle(visible(id), 40);
  const close = () => setAsked(null);
  async function act(action: "disconnect" | "end_session") {
    await actOn(id, action);
    done(action === "disconnect" ? "The connection was closed." : "The session was ended.");
  }
  async function disconnect() {
    close();
    try {
      await act("disconnect");
    } catch (error) {
      setProblem(problemOf(error));
    }
  }
  const lost = client.queue?.messages ?? 0;
  return (
    <span class="in-place">
      {problem && <span class="state bad">{visible(problem.detail)}</span>}
      {asked === "disconnect" ? (
        <>
          Disconnect {name}? It may come back.{" "}
          <button type="button" class="danger" onClick={disconnect}>
            Disconnect
          </button>
          <button type="button" onClick={() => setAsked("ban")}>
            Ban…
          </button>
          <button type="button" onClick={close}>
            Cancel
          </button>
        </>
      ) : (
        <>
          <Action needs="operator" disabled={client.state === "away"} onClick={() => setAsked("disconnect")}>
            Disconnect
          </Action>
          <Action needs="operator" onClick={() => setAsked("end")}>
            End session…
          </Action>
          <Action needs="operator" onClick={() => setAsked("ban")}>
            Ban…
          </Action>
        </>
      )}
      {asked === "end" && (
        <Confirm
          title={`End the session of ${name}?`}
          deed="End session"
          danger
          typed={lost > 0 ? id : null}
          act={() => act("end_session")}
          close={close}
        >
          <p>
            The session is deleted with {plural(lost, "queued message")} and{" "}
            {plural(client.subscriptions?.count ?? 0, "subscription")}.{" "}
            {client.state === "connected"
              ? "The client is disconnected; it can reconnect with a new session."
              : "The client is away."}
          </p>
        </Confirm>
      )}
      {asked === "ban" && <Ban id={id} name={name} close={close} done={done} />}
    </span>
  );
}

function Ban({ id, name, close, done }: { id: string; name: string; close(): void; done(what: string): void }) {
  const [seconds, setSeconds] = useState("3600");
  const [reason, setReason] = useState("");
  async function act() {
    await post("/bans", {
      client: id,
      seconds: seconds === "" ? null : Number(seconds),
      reason: reason || "by the dashboard",
    });
    await post("/actions", { action: "disconnect", client_ids: [id] });
    done("The client is banned.");
  }
  return (
    <Confirm title={`Ban ${name}?`} deed="Ban" danger act={act} close={close}>
      <p>The client is disconnected and cannot connect until the ban ends. Its session is kept.</p>
      <label class="field">
        For
        <select value={seconds} onChange={(event) => setSeconds(event.currentTarget.value)}>
          <option value="600">10 minutes</option>
          <option value="3600">1 hour</option>
          <option value="86400">1 day</option>
          <option value="">until the ban is removed</option>
        </select>
      </label>
      <label class="field">
        Reason
        <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
    </Confirm>
  );
}
