// Who is signed in, and what the role lets one do.
import { signal } from "@preact/signals";
import { ApiError, ask, csrfToken, nowItIsKnownWhoAsks, rejected, usedAt, whoAsks } from "./api";

export type Role = "viewer" | "operator" | "administrator";
export interface Me {
  user: string | null;
  key: string | null;
  role: Role;
  csrf_token: string | null;
  ends_at: string | null;
}

export const me = signal<Me | null>(null);
export const signedOut = signal(false);
const ranks: Role[] = ["viewer", "operator", "administrator"];
const tabs = new BroadcastChannel("heraldmq-session");

export const may = (needed: Role): boolean => me.value !== null && ranks.indexOf(me.value.role) >= ranks.indexOf(needed);

export async function lookWhoIsSignedIn(): Promise<void> {
  try {
    me.value = await ask<Me>("GET", "/me");
    csrfToken.value = me.value.csrf_token;
    signedOut.value = false;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // A broker without logins: what can be read can be read.
    if (error.problem.status === 404) me.value = { user: null, key: null, role: "viewer", csrf_token: null, ends_at: null };
  } finally {
    nowItIsKnownWhoAsks();
  }
}

whoAsks.lookAgain = async () => {
  const before = me.value?.user;
  await lookWhoIsSignedIn();
  return me.value?.user === before;
};

export async function signIn(user: string, password: string): Promise<void> {
  const answer = await ask<{ csrf_token: string }>("POST", "/login", { user, password });
  csrfToken.value = answer.csrf_token;
  await lookWhoIsSignedIn();
  tabs.postMessage("in");
}

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
