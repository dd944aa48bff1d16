// Who is signed in, and what the role lets one do.
import { signal } from "@preact/signals";
import type { LoginMethods, Me, Role } from "./api.types";
import {
  ApiError,
  ask,
  csrfToken,
  get,
  nowItIsKnownWhoAsks,
  post,
  rejected,
  sessionBegins,
  usedAt,
  whoAsks,
} from "./api";

export type { Me, Role };

export const me = signal<Me | null>(null);
export const signedOut = signal(false);
/** How somebody can sign in at the asked node; `null`: it is not known. */
export const methods = signal<LoginMethods | null>(null);
const ranks: Role[] = ["viewer", "operator", "administrator"];
const tabs = new BroadcastChannel("heraldmq-session");

export const may = (needed: Role): boolean =>
  me.value !== null && ranks.indexOf(me.value.role) >= ranks.indexOf(needed);

/** Whoever reads the audit: administrators, and those with the right `audits`. */
export const mayAudit = (): boolean => me.value?.audits === true || may("administrator");

export async function lookWhoIsSignedIn(): Promise<void> {
  try {
    signedInAs(await ask<Me>("GET", "/me"));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // A broker without logins: what can be read can be read.
    if (error.problem.status === 404)
      me.value = {
        user: null,
        key: null,
        role: "viewer",
        audits: false,
        must_change: false,
        csrf_token: null,
        ends_at: null,
      };
  } finally {
    nowItIsKnownWhoAsks();
  }
  if (me.value && !may("administrator")) await lookHowToSignIn();
}

function signedInAs(who: Me) {
  csrfToken.value = who.csrf_token;
  me.value = who;
  signedOut.value = false;
}

/** Whether somebody has a password, and whether the first administrator can be made. What was known stays if no answer comes. */
export async function lookHowToSignIn(): Promise<void> {
  try {
    methods.value = await get("/login/methods");
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

whoAsks.lookAgain = async () => {
  const before = me.value?.user;
  await lookWhoIsSignedIn();
  return me.value?.user === before;
};

whoAsks.hasToChange = () => {
  if (me.value && !me.value.must_change) void lookWhoIsSignedIn();
};

/** Sends what begins a session, which ends the one of before. */
async function begin(request: () => Promise<Me>): Promise<void> {
  signedInAs(await sessionBegins(request));
  tabs.postMessage("in");
}

export async function signIn(user: string, password: string): Promise<void> {
  await begin(() => post("/login", { user, password }));
  if (!may("administrator")) await lookHowToSignIn();
}

/** Makes the first administrator with the code in the node's log. */
export async function becomeFirst(code: string, user: string, password: string): Promise<void> {
  await begin(() => post("/login-first", { code, user, password }));
  await lookHowToSignIn();
}

export const changeOwnPassword = (old: string, next: string): Promise<void> =>
  begin(() => post("/own-password", { old, new: next }));

export async function signOut(): Promise<void> {
  await ask("POST", "/logout");
  forget();
  tabs.postMessage("out");
}

function forget() {
  me.value = null;
  csrfToken.value = null;
  signedOut.value = true;
}

rejected.subscribe((times) => {
  if (times > 0) forget();
});
// Requests of other tabs keep the session of this one: it is the same.
const uses = new BroadcastChannel("heraldmq-used");
let toldAt = Date.now();
usedAt.subscribe((at) => {
  if (at - toldAt < 10_000) return;
  toldAt = at;
  uses.postMessage("");
});
uses.onmessage = () => (usedAt.value = toldAt = Date.now());

tabs.onmessage = (message) => (message.data === "in" ? void lookWhoIsSignedIn() : forget());
