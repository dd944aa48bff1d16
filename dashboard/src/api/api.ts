// Requests to /api/v1 of whoever served this page.
import { signal } from "@preact/signals";
import type { Delete, Get, Missing, Post } from "./api.types";

export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  instance: string;
  [member: string]: unknown;
}

export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.title);
  }
  get word(): string {
    return this.problem.type.split(":").pop() ?? "";
  }
}

/** Whoever hears of an answer 401. */
export const rejected = signal(0);
/** When the broker has last answered a request of this browser that was let in, by the browser's clock. */
export const usedAt = signal(Date.now());
export const csrfToken = signal<string | null>(null);

let known = () => {};
/** Requests that change something, or might, wait until it is known who asks: they need the token. */
const whoIsKnown = new Promise<void>((done) => (known = done));
export { known as nowItIsKnownWhoAsks };

type Query = Record<string, string | number | boolean | null | undefined>;
type Parts = Record<string, string>;

/** `/clients/{client_id}` with its parts and query, as a URL without the prefix of the API. */
export function fill(path: string, query: Query = {}, parts: Parts = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(parts[name] ?? ""));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value != null && value !== "") search.set(name, String(value));
  return filled + (search.size > 0 ? `?${search}` : "");
}

export const apiUrl = (path: string): string => new URL(`api/v1${path}`, document.baseURI).href;

export function get<Path extends keyof Get>(
  path: Path,
  query?: Query,
  parts?: Parts,
  abort?: AbortSignal,
): Promise<Get[Path]["answer"]> {
  return ask("GET", fill(path, query, parts), undefined, abort);
}

export function post<Path extends keyof Post>(
  path: Path,
  body: Partial<NonNullable<Post[Path]["body"]>>,
  parts?: Parts,
  abort?: AbortSignal,
  query: Query = {},
): Promise<Post[Path]["answer"]> {
  return ask("POST", fill(path, query, parts), body, abort);
}

export function remove<Path extends keyof Delete>(
  path: Path,
  query?: Query,
  parts?: Parts,
): Promise<Delete[Path]["answer"]> {
  return ask("DELETE", fill(path, query, parts));
}

/**
 * What the session does: `lookAgain` looks who is signed in, and says whether that is who was before; `hasToChange` hears that another
 * password has to be chosen before anything else.
 */
export const whoAsks = { lookAgain: async (): Promise<boolean> => false, hasToChange: () => {} };

/** Requests under way that begin a session. Each ends the session of before, so other requests may meanwhile be refused. */
let beginning = 0;
export async function sessionBegins<Answer>(request: () => Promise<Answer>): Promise<Answer> {
  beginning++;
  try {
    return await request();
  } finally {
    beginning--;
  }
}

/** `limitMs`: how long an answer may take. */
export async function ask<Answer>(
  method: string,
  path: string,
  body?: unknown,
  abort?: AbortSignal,
  limitMs?: number,
): Promise<Answer> {
  return (await send<Answer>(method, path, { body, abort, ...(limitMs === undefined ? {} : { limitMs }) })).answer;
}

interface Sent {
  body?: unknown;
  abort?: AbortSignal | undefined;
  headers?: Record<string, string>;
  /** How long the answer may take. */
  limitMs?: number;
}

/** The same with headers, and with those of the answer. */
export async function send<Answer>(
  method: string,
  path: string,
  { body, abort, headers: more, limitMs = 10_000 }: Sent = {},
  again = true,
): Promise<{ answer: Answer; headers: Headers }> {
  const isLogin = path.startsWith("/login");
  if (method !== "GET" && !isLogin) await whoIsKnown;
  const token = csrfToken.value;
  const headers: Record<string, string> = { Accept: "application/json", ...more };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET" && token) headers["X-CSRF-Token"] = token;
  let answer: Response, text: string;
  try {
    const limit = AbortSignal.timeout(limitMs);
    const init: RequestInit = {
      method,
      headers,
      credentials: "same-origin",
      cache: "no-store",
      signal: abort ? AbortSignal.any([abort, limit]) : limit,
    };
    if (body !== undefined) init.body = JSON.stringify(body);
    answer = await fetch(apiUrl(path), init);
    text = await answer.text();
  } catch (error) {
    if (abort?.aborted) throw error;
    throw new ApiError(silent(method));
  }
  if (answer.ok) usedAt.value = Date.now();
  if (answer.status === 204) return { answer: null as Answer, headers: answer.headers };
  if (answer.ok) return { answer: JSON.parse(text) as Answer, headers: answer.headers };
  const problem = asProblem(answer.status, text);
  if (again && method !== "GET" && problem.type.endsWith(":csrf")) {
    // Another tab has signed in since: the cookie is that of a new session, and the token is not. Nothing was done yet.
    // Somebody else may have: what was asked for is not done in another name.
    if (await whoAsks.lookAgain())
      return send(method, path, { body, abort, limitMs, ...(more ? { headers: more } : {}) }, false);
  }
  if (problem.reason === "password_change") whoAsks.hasToChange();
  // A wrong password ends no session, and a refusal of the session of before says nothing of the one that has begun since.
  const isOfNow = beginning === 0 && token === csrfToken.value && !problem.type.endsWith(":login-failed");
  if (answer.status === 401 && !isLogin && isOfNow) rejected.value++;
  throw new ApiError(problem);
}

/** The first lines of an answer that is lines of JSON; the rest is not read. */
export async function firstLines(path: string, most: number, abort: AbortSignal): Promise<unknown[]> {
  const answer = await fetch(apiUrl(path), {
    headers: { Accept: "application/x-ndjson" },
    credentials: "same-origin",
    cache: "no-store",
    signal: AbortSignal.any([abort, AbortSignal.timeout(10_000)]),
  });
  if (!answer.ok || !answer.body) throw new ApiError(asProblem(answer.status, await answer.text()));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let ended = false; !ended && text.split("\n").length <= most; ) {
    const { done, value } = await reader.read();
    [text, ended] = [text + (value ?? ""), done];
  }
  void reader.cancel();
  return text
    .split("\n")
    .slice(0, most)
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));
}

function silent(method: string): Problem {
  const detail =
    method === "GET"
      ? "No answer arrived. The request is sent again."
      : "No answer arrived. The broker may or may not have carried out the request.";
  return {
    type: "urn:heraldmq:problem:no-answer",
    title: "The broker does not answer",
    status: 0,
    detail,
    instance: "",
  };
}

function asProblem(status: number, text: string): Problem {
  try {
    const problem = JSON.parse(text) as Problem;
    if (typeof problem.title === "string") return problem;
  } catch {
    // A proxy's page, or plain text.
  }
  return { type: "about:blank", title: `The answer was ${status}`, status, detail: text.slice(0, 300), instance: "" };
}

export const problemOf = (error: unknown): Problem =>
  error instanceof ApiError
    ? error.problem
    : { type: "about:blank", title: "The page failed", status: 0, detail: String(error), instance: "" };

/** What fits into a path of a URL, whatever browser and proxies do with it. */
export const fitsPath = (id: string): boolean => /^[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,255}$/.test(id);

export const missingOf = (answer: unknown): Missing[] => (answer as { partial?: Missing[] } | null)?.partial ?? [];
