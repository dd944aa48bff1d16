// Dialogs of who signs in: the first administrator, a login, another password, and who is signed in.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { get, problemOf, type Problem } from "../api/api";
import { showTime } from "../api/clock";
import { commandOf, quote } from "../words/command";
import { Dialog } from "./dialog";
import { middle, visible } from "../words/format";
import { Failed } from "./notices";
import {
  becomeFirst,
  changeOwnPassword,
  lookHowToSignIn,
  may,
  me,
  methods,
  signedOut,
  signIn,
  signOut,
} from "../api/session";
import { AsCommand } from "../access/change";

/** Characters of the shortest password of a person, as the API has it. */
export const shortest = 12;
export const isLongEnough = (password: string): boolean => [...password].length >= shortest;

/** Which of the two forms was asked for, where there are two. */
const asked = signal<"login" | "first" | null>(null);
export const accountOpen = signal(false);

export function askToSignIn(form: "login" | "first" | null = null): void {
  asked.value = form;
  signedOut.value = true;
}

const close = () => {
  if (me.value) {
    signedOut.value = false;
    asked.value = null;
  }
};

export function SignIn() {
  useEffect(() => void lookHowToSignIn(), []);
  const how = methods.value;
  const isFirst = how?.first === true && (asked.value === "first" || (asked.value === null && !how.password));
  return isFirst ? (
    <First hasPeople={how.password} />
  ) : (
    <Login isFirst={how?.first === true} hasPeople={how?.password !== false} />
  );
}

/** Sends a form; what was typed stays if it is refused. */
function useForm(send: () => Promise<unknown>) {
  const [problem, setProblem] = useState<Problem | null>(null);
  const [asking, setAsking] = useState(false);
  async function submit(event: Event) {
    event.preventDefault();
    setAsking(true);
    try {
      await send();
      setProblem(null);
    } catch (error) {
      setProblem(problemOf(error));
    }
    setAsking(false);
  }
  return { problem, asking, submit };
}

function useFocus() {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  return input;
}

const Cancel = () =>
  me.value ? (
    <button type="button" onClick={close}>
      Cancel
    </button>
  ) : null;

function Login({ isFirst, hasPeople }: { isFirst: boolean; hasPeople: boolean }) {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const { problem, asking, submit } = useForm(async () => {
    try {
      await signIn(user, password);
      asked.value = null;
    } catch (error) {
      void lookHowToSignIn();
      throw error;
    }
  });
  return (
    <Dialog title="Sign in" close={close}>
      <form onSubmit={submit}>
        <label class="field">
          User
          <input autocomplete="username" value={user} onInput={(event) => setUser(event.currentTarget.value)} />
        </label>
        <label class="field">
          Password
          <input
            type="password"
            autocomplete="current-password"
            value={password}
            onInput={(event) => setPassword(event.currentTarget.value)}
          />
        </label>
        {problem && <Failed problem={problem} />}
        {isFirst && (
          <p class="soft small">
            Nobody can change anything on this broker yet.{" "}
            <button type="button" class="link" onClick={() => (asked.value = "first")}>
              Become the first administrator
            </button>
          </p>
        )}
        {!isFirst && !hasPeople && <NoPasswords />}
        <div class="buttons">
          <Cancel />
          <button type="submit" class="primary" disabled={asking || user === "" || password === ""}>
            Sign in
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Somebody can change something, but with a key only; or the node has just started. */
const NoPasswords = () => (
  <div class="panel">
    <p>
      Nobody has a password yet, as far as this node knows. If you have a key of the role administrator, it adds the
      first person; the command asks for a password:
    </p>
    <p>
      <code>{commandOf("person add", ["anna"], { role: "administrator" })}</code>
    </p>
    <p>Or write a file of people on the machine of the broker, and restart the broker with it:</p>
    <p>
      <code>heraldmq passwd people anna</code>
    </p>
    <p>
      <code>heraldmq serve --set http.userFile=people --set http.administrators=anna</code>
    </p>
  </div>
);

function First({ hasPeople }: { hasPeople: boolean }) {
  const [code, setCode] = useState("");
  const [user, setUser] = useState("");
  const [password, setPassword] = useState<string | null>(null);
  const first = useFocus();
  const { problem, asking, submit } = useForm(async () => {
    await becomeFirst(code.trim(), user, password!);
    asked.value = null;
  });
  // The broker has the same problem for a wrong password; its title says so.
  const shown = problem?.type.endsWith(":login-failed") ? { ...problem, title: "The code was refused" } : problem;
  return (
    <Dialog title="Become the first administrator" close={close}>
      <form onSubmit={submit}>
        <p>
          Nobody can change anything on this broker yet. Whoever can read its log can become the first administrator.
        </p>
        <p>
          The node that serves this page, {visible(location.host)}, has written a code to its log when it started. The
          line ends with <code>code="…"</code>. It stands in the terminal in which the broker runs, or is printed by one
          of these commands:
        </p>
        <ul class="small">
          <li>
            a service of the system: <code>journalctl -u heraldmq | grep 'first administrator'</code>
          </li>
          <li>
            a container: <code>docker logs CONTAINER 2&gt;&amp;1 | grep 'first administrator'</code>
          </li>
        </ul>
        <p class="soft small">
          If the log has several such lines, the last one counts. If it has none, this node uses a level below 7: finish
          the upgrade, or write a file of people (<code>http.userFile</code>).
        </p>
        <label class="field">
          Code
          <input
            ref={first}
            value={code}
            autocomplete="off"
            spellcheck={false}
            placeholder="XXXXX-XXXXX-XXXXX-XXXXX"
            onInput={(event) => setCode(event.currentTarget.value)}
          />
        </label>
        <label class="field">
          User name
          <input
            value={user}
            autocomplete="username"
            spellcheck={false}
            onInput={(event) => setUser(event.currentTarget.value)}
          />
        </label>
        <NewPassword set={setPassword} />
        {shown && <Failed problem={shown} />}
        <AsCommand command={commandOf("person first", [user || "NAME"])} hint="it asks for the code and the password" />
        {hasPeople && (
          <p>
            <button type="button" class="link" onClick={() => (asked.value = "login")}>
              Sign in with a password
            </button>
          </p>
        )}
        <div class="buttons">
          <Cancel />
          <button
            type="submit"
            class="primary"
            disabled={asking || code.trim() === "" || user === "" || password === null}
          >
            Become administrator
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** A password that is typed twice. `set` hears it once it is long enough and both are the same, else `null`. */
function NewPassword({ set }: { set(password: string | null): void }) {
  const [typed, setTyped] = useState<readonly [string, string]>(["", ""]);
  const [password, again] = typed;
  function change(next: readonly [string, string]) {
    setTyped(next);
    set(isLongEnough(next[0]) && next[0] === next[1] ? next[0] : null);
  }
  const says = !isLongEnough(password)
    ? `A password has at least ${shortest} characters.`
    : again !== "" && !password.startsWith(again)
      ? "The two passwords differ."
      : password === again
        ? "Both passwords are the same."
        : "Type the password a second time.";
  return (
    <>
      <div class="pairs">
        <label class="field">
          New password
          <input
            type="password"
            autocomplete="new-password"
            value={password}
            onInput={(event) => change([event.currentTarget.value, again])}
          />
        </label>
        <label class="field">
          The same again
          <input
            type="password"
            autocomplete="new-password"
            value={again}
            onInput={(event) => change([password, event.currentTarget.value])}
          />
        </label>
      </div>
      <p class="soft small" role="status">
        {says}
      </p>
    </>
  );
}

interface OwnPasswordProps {
  /** It is the only thing that can be done. */
  must: boolean;
  done(): void;
}

function OwnPassword({ must, done }: OwnPasswordProps) {
  const [old, setOld] = useState("");
  const [password, setPassword] = useState<string | null>(null);
  const [isOfFile, setOfFile] = useState(false);
  const first = useFocus();
  const name = me.value?.user ?? "";
  useEffect(() => {
    // Only administrators may ask where people are known. All others learn it when the password is refused.
    if (!must && may("administrator"))
      get("/people/{name}", {}, { name }).then(
        (person) => setOfFile(person.source === "file"),
        () => {},
      );
  }, []);
  const { problem, asking, submit } = useForm(async () => {
    await changeOwnPassword(old, password!);
    done();
  });
  if (isOfFile || problem?.reason === "not_own")
    return (
      <>
        <p>
          Your password is in a file of this node (<code>http.userFile</code>), which the dashboard does not change.
          Whoever may write the file runs on the machine of the node:
        </p>
        <p>
          <code>heraldmq passwd FILE {quote(name)}</code>
        </p>
        <div class="buttons">
          <button type="button" onClick={() => (accountOpen.value = false)}>
            Close
          </button>
        </div>
      </>
    );
  const isSame = password !== null && password === old;
  const shown = problem?.type.endsWith(":login-failed") ? { ...problem, title: "The old password is wrong" } : problem;
  return (
    <form onSubmit={submit}>
      <input type="text" hidden autocomplete="username" value={name} readOnly />
      <label class="field">
        Old password
        <input
          ref={first}
          type="password"
          autocomplete="current-password"
          value={old}
          onInput={(event) => setOld(event.currentTarget.value)}
        />
      </label>
      <NewPassword set={setPassword} />
      {isSame && (
        <p class="soft small" role="status">
          The new password is the old one: choose another.
        </p>
      )}
      {shown && <Failed problem={shown} />}
      <p class="soft small">Your sessions in other browsers end.</p>
      <div class="buttons">
        {must ? (
          <button type="button" onClick={() => void signOut()}>
            Sign out
          </button>
        ) : (
          <button type="button" onClick={() => (accountOpen.value = false)}>
            Cancel
          </button>
        )}
        <button type="submit" class="primary" disabled={asking || old === "" || password === null || isSame}>
          Change the password
        </button>
      </div>
    </form>
  );
}

/** Over the page, until it is done: the broker refuses everything else. */
export function MustChange() {
  return (
    <Dialog title="Choose another password" close={() => {}}>
      <p>
        Somebody else knows the password with which you have signed in. Choose one that only you know; until then, the
        broker refuses everything else.
      </p>
      <OwnPassword must done={() => {}} />
    </Dialog>
  );
}

/** Who is signed in, with which rights and until when; and another password. */
export function Account() {
  const who = me.value;
  const [done, setDone] = useState(false);
  const shut = () => (accountOpen.value = false);
  if (!who?.user) return null;
  const audit = who.role === "administrator" ? "" : who.audits ? " and may read the audit" : "";
  return (
    <Dialog title={`Signed in as ${middle(visible(who.user), 60)}`} close={shut}>
      <p>
        You have the role {who.role}
        {audit}. The session ends at {showTime(who.ends_at)}, or after half an hour without activity.
      </p>
      {done ? (
        <>
          <p role="status">Your password was changed. Your sessions in other browsers have ended.</p>
          <div class="buttons">
            <button type="button" onClick={shut}>
              Close
            </button>
          </div>
        </>
      ) : (
        <>
          <h3>Another password</h3>
          <OwnPassword must={false} done={() => setDone(true)} />
        </>
      )}
    </Dialog>
  );
}

/** For whoever may only read, where nobody may do more. */
export function FirstBanner() {
  if (!methods.value?.first || !me.value || may("administrator")) return null;
  return (
    <div class="notice warn">
      <span class="notice-text">Nobody can change anything on this broker yet: it has no administrator.</span>
      <button type="button" onClick={() => askToSignIn("first")}>
        Become the first administrator…
      </button>
    </div>
  );
}
