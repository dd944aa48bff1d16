// What is done to a client or its queue from more than one page.
import { ApiError, post, type Problem } from "../api/api";
import { Confirm } from "./dialog";
import { middle, plural, visible } from "../words/format";
import { link } from "../navigation/route";

export async function actOn(id: string, action: "disconnect" | "end_session" | "empty_queue") {
  const [result] = await post("/actions", { action, client_ids: [id] }, undefined, undefined, { budget_ms: 5000 });
  if (result?.problem) throw new ApiError(result.problem as unknown as Problem);
  return result;
}

interface Asked {
  id: string;
  close(): void;
  /** Says what was done. */
  done(what: string): void;
}

export function Disconnect({ id, close, done }: Asked) {
  const name = middle(visible(id), 40);
  async function act() {
    await actOn(id, "disconnect");
    done(`The connection of ${name} was closed.`);
  }
  return (
    <Confirm title={`Disconnect ${name}?`} deed="Disconnect" danger act={act} close={close}>
      <p>
        The broker closes the connection. The client can reconnect at once; to keep it out, ban it on{" "}
        <a href={link("client", { id })}>its page</a>.
      </p>
    </Confirm>
  );
}

/** Several clients at once; those that could not be disconnected are named. */
export function DisconnectAll({ ids, close, done }: { ids: string[]; close(): void; done(what: string): void }) {
  async function act() {
    const results = await post("/actions", { action: "disconnect", client_ids: ids }, undefined, undefined, {
      budget_ms: 5000,
    });
    const failed = results.filter((result) => result.problem);
    const names = failed
      .slice(0, 3)
      .map((result) => middle(visible(result.client_id), 40))
      .join(", ");
    done(
      `${plural(results.length - failed.length, "connection was", "connections were")} closed.${failed.length > 0 ? ` ${plural(failed.length, "client")} could not be disconnected: ${names}${failed.length > 3 ? ", …" : ""}.` : ""}`,
    );
  }
  return (
    <Confirm
      title={`Disconnect ${plural(ids.length, "client")}?`}
      deed="Disconnect"
      danger
      typed={ids.length > 10 ? String(ids.length) : null}
      act={act}
      close={close}
    >
      <p>The broker closes their connections. The clients can reconnect at once.</p>
    </Confirm>
  );
}

export function EmptyQueue({ id, waiting, close, done }: Asked & { waiting: number }) {
  async function act() {
    const purge = (await actOn(id, "empty_queue"))?.emptied;
    if (purge)
      done(
        `${plural(purge.removed, "message was", "messages were")} dropped.${purge.complete ? "" : " Some messages are left: they could not be dropped in time."}`,
      );
  }
  return (
    <Confirm
      title={`Empty the queue of ${middle(visible(id), 40)}?`}
      deed="Empty queue"
      danger
      typed={id}
      act={act}
      close={close}
    >
      <p>
        {plural(waiting, "queued message is", "queued messages are")} dropped, with the reason <em>purged</em>. The
        session and its subscriptions are kept.
      </p>
    </Confirm>
  );
}
