// Who is this user, and what may it do?
import { useState } from "preact/hooks";
import type { AccessGroup, AccessUser, AclAnswer } from "../api/api.types";
import { ApiError, get, missingOf, post, problemOf, type Problem } from "../api/api";
import { commandOf } from "../words/command";
import { Secret } from "../access/change";
import { allGroups } from "../access/groups";
import { UserDeedDialog, unlessReachable, type UserDeed } from "../access/userdialogs";
import { Enabled, proofsOf } from "../access/users";
import { isReachable, rulesOf, type RuleOf } from "../access/words";
import { Action } from "../parts/dialog";
import { count, middle, plural, visible, words } from "../words/format";
import { Empty, Failed, Head, Partial, Told, isStale } from "../parts/notices";
import { usePolled, type Polled } from "../api/poll";
import { link, route } from "../navigation/route";
import { mayAudit } from "../api/session";
import { Table } from "../parts/table";
import { Fact, Foreign, Moment, State } from "../parts/text";

interface Found {
  user: AccessUser;
  /** Those of the user, and those that these include. */
  groups: Map<string, AccessGroup>;
}

async function find(name: string, abort: AbortSignal): Promise<Found> {
  const user = await get("/users/{name}", {}, { name }, abort);
  const groups = new Map<string, AccessGroup>();
  const add = async (wanted: string[]) => {
    const unknown = [...new Set(wanted)].filter((one) => !groups.has(one) && isReachable(one));
    for (const group of await Promise.all(
      unknown.map((one) => get("/groups/{name}", {}, { name: one }, abort).catch(ifMissing)),
    ))
      if (group) groups.set(group.name, group);
  };
  await add(user.groups);
  await add([...groups.values()].flatMap((group) => group.includes));
  return { user, groups };
}

/** A group may have been removed between two answers. */
function ifMissing(error: unknown): null {
  if (error instanceof ApiError && error.problem.status === 404) return null;
  throw error;
}

export function UserPage() {
  const name = route.value.parameters.id ?? "";
  const polled = usePolled(
    (abort) => (isReachable(name) ? find(name, abort) : Promise.reject(new ApiError(unnamed(name)))),
    10_000,
    [name],
  );
  // Looks at each client of the cluster, so it is asked rarely.
  const clients = usePolled(
    (abort) => get("/clients", { user: name, state: "connected", limit: 100 }, {}, abort),
    30_000,
    [name],
  );
  const [told, setTold] = useState<string | null>(null);
  const [secret, setSecret] = useState<string | null>(null);
  const [deed, setDeed] = useState<UserDeed | null>(null);
  const [groups, setGroups] = useState<AccessGroup[]>([]);
  const short = middle(visible(name), 60);
  const gone = polled.problem?.status === 404;
  const found = gone ? null : polled.value;
  const connected = clients.value && {
    ids: clients.value.items.map((row) => row.client_id),
    more: clients.value.next !== null || missingOf(clients.value).length > 0,
  };
  function ask(what: UserDeed) {
    if (what !== "change") return setDeed(what);
    allGroups().then(
      (all) => {
        setGroups(all);
        setDeed(what);
      },
      () => setDeed(what),
    );
  }
  const actions = found && (
    <>
      <Action needs="administrator" unless={unlessReachable(name)} onClick={() => ask("change")}>
        Change…
      </Action>
      <Action
        needs="administrator"
        unless={unlessReachable(name)}
        onClick={() => ask(found.user.enabled ? "disable" : "enable")}
      >
        {found.user.enabled ? "Disable…" : "Enable…"}
      </Action>
      <Action needs="administrator" unless={unlessReachable(name)} onClick={() => ask("password")}>
        Password…
      </Action>
      <Action needs="administrator" unless={unlessReachable(name)} onClick={() => ask("remove")}>
        Remove…
      </Action>
    </>
  );
  return (
    <>
      <Head
        title={`User ${short}`}
        polled={gone ? undefined : polled}
        request={`/users/${encodeURIComponent(name)}`}
        command={commandOf("user show", [name])}
        actions={actions}
      >
        <span data-copy={name}>
          {gone
            ? "There is no user of this name in the store of users. It may be in a file, a database or a token."
            : found && sentence(found.user, connected)}
        </span>
      </Head>
      <Told>{told}</Told>
      {gone && (
        <p>
          <a href={link("access", { prefix: name.slice(0, 200) })}>Users whose names begin so</a> ·{" "}
          <a href={link("clients", { user: name })}>clients with this user name</a>
          {mayAudit() && (
            <>
              {" "}
              · <a href={changesOf(name)}>what was changed</a>
            </>
          )}
        </p>
      )}
      {found && (
        <>
          <Facts user={found.user} stale={isStale(polled)} />
          <Rights name={name} found={found} connected={connected?.ids ?? null} clients={clients} />
        </>
      )}
      {deed && found && (
        <UserDeedDialog
          deed={deed}
          user={found.user}
          groups={groups}
          close={() => setDeed(null)}
          done={(what, made) => {
            setTold(what);
            setSecret(made?.secret ?? null);
            polled.again();
            clients.again();
          }}
        />
      )}
      {secret && <Secret name={name} secret={secret} close={() => setSecret(null)} />}
    </>
  );
}

const changesOf = (name: string) => link("audit", { target: name, action: "user." });

const unnamed = (name: string): Problem => ({
  type: "about:blank",
  title: "This user has no page",
  status: 0,
  instance: "",
  detail:
    name === ""
      ? "The link names no user."
      : `Browsers cannot name the user "${name}" in a path. ${commandOf("user show", [name])} shows it.`,
});

function sentence(user: AccessUser, connected: { ids: string[]; more: boolean } | null) {
  const logs = user.enabled ? `Clients can log in with a ${proofsOf(user)}` : "Disabled: nobody can log in";
  const may = user.superuser
    ? "they may do everything"
    : `${plural(user.rules.length, "rule")} of its own and ${plural(user.groups.length, "group")} come before the rules for everybody`;
  return (
    <>
      {logs}; {may}
      {connected && (
        <>
          ;{" "}
          <a href={link("clients", { user: user.name, state: "connected" })}>
            {connected.more
              ? `at least ${plural(connected.ids.length, "client is", "clients are")}`
              : connected.ids.length === 0
                ? "no client is"
                : plural(connected.ids.length, "client is", "clients are")}{" "}
            connected
          </a>
        </>
      )}
      .
    </>
  );
}

function Facts({ user, stale }: { user: AccessUser; stale: boolean }) {
  return (
    <div class={`facts ${stale ? "stale" : ""}`}>
      <section>
        <h2>Login</h2>
        <dl>
          <Fact name="Logins">
            <Enabled user={user} />
          </Fact>
          <Fact name="Proof">{proofsOf(user)}</Fact>
          <Fact name="Ends">{user.ends_at === null ? "never" : <Moment at={user.ends_at} />}</Fact>
        </dl>
      </section>
      <section>
        <h2>Clients</h2>
        <dl>
          <Fact name="Identifiers">
            {user.client_ids === null ? "all" : <Foreign text={user.client_ids} most={60} />}
          </Fact>
          <Fact name="Class">{user.class === null ? "what else matches decides" : visible(user.class)}</Fact>
          <Fact name="Superuser">{user.superuser ? "yes: rules are not asked" : "no"}</Fact>
        </dl>
      </section>
      <section>
        <h2>Record</h2>
        <dl>
          <Fact name="Groups">
            {user.groups.length === 0
              ? "none"
              : user.groups.map((group, n) => (
                  <span key={group}>
                    {n > 0 && ", "}
                    <Foreign text={group} href={link("access", { group })} />
                  </span>
                ))}
          </Fact>
          <Fact name="Note">{user.note === "" ? "none" : visible(user.note)}</Fact>
          <Fact name="Revision">
            {count(user.revision)}
            {mayAudit() && (
              <>
                {" "}
                · <a href={changesOf(user.name)}>what was changed</a>
              </>
            )}
          </Fact>
        </dl>
      </section>
    </div>
  );
}

const by: Record<AclAnswer["by"], string> = {
  superuser: "its clients may do everything",
  login: "by a rule of the user or its groups",
  list: "by the rules for everybody",
  file: "by the rule file",
  no_match: "no rule matches, and authorization.noMatch decides",
};

function Rights({
  name,
  found,
  connected,
  clients,
}: {
  name: string;
  found: Found;
  connected: string[] | null;
  clients: Polled<unknown>;
}) {
  const [action, setAction] = useState("publish");
  const [topic, setTopic] = useState("");
  const [chosen, setChosen] = useState("");
  const [typed, setTyped] = useState("");
  const [answer, setAnswer] = useState<AclAnswer | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const client = chosen || connected?.[0] || null;
  const id = client ?? typed;
  async function ask(event: Event) {
    event.preventDefault();
    try {
      // As the client is known, its login counts; as a name alone, only what all clients have in common.
      setAnswer(
        await post(
          "/acl/test",
          client !== null ? { client_id: client, action, topic } : { client_id: id, user: name, action, topic },
        ),
      );
      setProblem(null);
    } catch (error) {
      setAnswer(null);
      setProblem(problemOf(error));
    }
  }
  const own = rulesOf(found.user, found.groups);
  const isAnother = answer !== null && client !== null && answer.user !== name;
  return (
    <>
      <h2 class="section-title">What may it do?</h2>
      {clients.problem ? (
        <Failed problem={clients.problem} again={clients.again} />
      ) : (
        <Partial missing={missingOf(clients.value)} again={clients.again} />
      )}
      <form class="filters" onSubmit={ask}>
        {client !== null ? (
          <label class="field">
            Client
            <select value={client} onChange={(event) => setChosen(event.currentTarget.value)}>
              {connected!.map((one) => (
                <option key={one} value={one}>
                  {middle(visible(one), 40)}
                </option>
              ))}
            </select>
          </label>
        ) : (
          <label class="field">
            Client identifier
            <input
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
              spellcheck={false}
              autocomplete="off"
            />
          </label>
        )}
        <label class="field">
          Action
          <select value={action} onChange={(event) => setAction(event.currentTarget.value)}>
            {["publish", "retain", "subscribe", "receive"].map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <label class="field wide">
          Topic or filter
          <input value={topic} onInput={(event) => setTopic(event.currentTarget.value)} spellcheck={false} />
        </label>
        <button type="submit" disabled={topic === "" || id === ""}>
          Test
        </button>
      </form>
      {client === null && connected !== null && !found.user.superuser && own.length > 0 && (
        <p class="soft small">
          No client of this user is connected, so the broker tests the rules for everybody and the rule file alone. The
          rules below come before these: they decide if one of them matches.
        </p>
      )}
      {problem && <Failed problem={problem} />}
      {answer && !isAnother && (
        <p role="status">
          {answer.may ? <State is="ok" say="allowed" /> : <State is="refused" say="denied" />}:{" "}
          {by[answer.by] ?? words(answer.by)}
          {answer.line !== null &&
            answer.by !== "superuser" &&
            `, ${answer.by === "login" ? "number" : "line"} ${answer.line}`}
          .
        </p>
      )}
      {isAnother && <p role="status">The client is not connected as this user any more. Test again.</p>}
      <h2 class="section-title">Rules that it brings to its login</h2>
      {found.user.superuser ? (
        <Empty>The clients of a superuser may do everything; its rules are not asked.</Empty>
      ) : own.length === 0 ? (
        <Empty>
          The user and its groups have no rules. <a href={link("access", { tab: "rules" })}>The rules for everybody</a>{" "}
          and the rule file decide.
        </Empty>
      ) : (
        <>
          <p class="answer">
            The first rule that matches decides. Then come{" "}
            <a href={link("access", { tab: "rules" })}>the rules for everybody</a>, the rule file of the node, and{" "}
            <code>authorization.noMatch</code>.
          </p>
          <Table
            label="Rules of the user and its groups"
            rows={own}
            keyOf={(rule) => rule.number}
            tone={(rule) => (answer?.by === "login" && answer.line === rule.number ? "chosen" : "")}
            columns={columns}
          />
        </>
      )}
    </>
  );
}

const columns = [
  { head: "Number", width: 9, figure: true, cell: (rule: RuleOf) => count(rule.number) },
  {
    head: "From",
    width: 24,
    cell: (rule: RuleOf) =>
      rule.group === null ? (
        "the user"
      ) : (
        <>
          group <Foreign text={rule.group} href={link("access", { tab: "groups" })} />
        </>
      ),
  },
  {
    head: "Rule",
    cell: (rule: RuleOf) => (
      <code class="wrap" data-copy={rule.text}>
        {visible(rule.text)}
      </code>
    ),
  },
];
