// Serves dist/ with the headers of the broker, at / or below a prefix, passes /api/v1/ on to a node, and stands in for
// logins: any user whose name is a role, with the password "try".
import { createServer, request } from "node:http";
import { readFileSync, existsSync } from "node:fs";
import { join, dirname } from "node:path";
import { fileURLToPath } from "node:url";

const dist = join(dirname(fileURLToPath(import.meta.url)), "..", "dist");
const types = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml", json: "application/json", txt: "text/plain; charset=utf-8" };
export const headers = {
  "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
};
const ranks = ["viewer", "operator", "administrator"];

/** `role` is that of the one who is signed in at first; `null` asks for a login. */
export function serve({ node, key, port = 0, prefix = "/", role = "administrator", user = "eva" }) {
  const state = { node, role, user, token: "csrf-for-trying", failing: null, events: false };
  const server = createServer((asked, answer) => {
    const url = new URL(asked.url, "http://localhost");
    if (!url.pathname.startsWith(prefix)) return problem(answer, 404, "unknown-path", "There is no such path");
    const path = url.pathname.slice(prefix.length);
    if (path.startsWith("api/v1/")) return api(state, key, asked, answer, path.slice(7), url.search);
    file(asked, answer, path || "index.html");
  });
  return new Promise((done) => server.listen(port, "127.0.0.1", () => done({
    state, url: `http://127.0.0.1:${server.address().port}${prefix}`, close() { server.closeAllConnections(); server.close(); },
  })));
}

function file(asked, answer, path) {
  const extension = path.split(".").pop();
  if (!/^(assets\/)?[\w.-]+$/.test(path) || !(extension in types) || !existsSync(join(dist, path))) return problem(answer, 404, "unknown-path", "There is no such path");
  const accepted = asked.headers["accept-encoding"] ?? "";
  const encoding = [["br", ".br"], ["gzip", ".gz"]].find(([name, end]) => accepted.includes(name) && existsSync(join(dist, path + end)));
  answer.writeHead(200, {
    ...headers, "Content-Type": types[extension], Vary: "Accept-Encoding",
    "Cache-Control": path.startsWith("assets/") ? "public, max-age=31536000, immutable" : "no-cache",
    ...(encoding ? { "Content-Encoding": encoding[0] } : {}),
  });
  answer.end(readFileSync(join(dist, path + (encoding?.[1] ?? ""))));
}

function problem(answer, status, name, title, more = {}) {
  answer.writeHead(status, { "Content-Type": "application/problem+json", "Cache-Control": "no-store" });
  answer.end(JSON.stringify({ type: `urn:heraldmq:problem:${name}`, title, status, detail: title + ".", instance: "urn:heraldmq:request:0", ...more }));
}

function json(answer, value) {
  answer.writeHead(200, { "Content-Type": "application/json", "Cache-Control": "no-store" });
  answer.end(JSON.stringify(value));
}

/** A stand-in: a client that comes, and a message that is dropped, every half second. */
function events(answer, query) {
  answer.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  answer.write("event: hello\ndata: {}\n\n");
  let seq = 0;
  const timer = setInterval(() => {
    seq++;
    const dropped = seq % 2 === 0;
    const event = { type: dropped ? "message.dropped" : "client.connected", at: new Date().toISOString(), node: "0", node_name: "mq-1", seq, client_id: query.get("client_id") ?? "press-1",
      user: null, address: null, reason: dropped ? "queue_full_messages" : null, topic: dropped ? "plant/4/state" : null, count: dropped ? 3 : null, detail: null };
    answer.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
    if (seq === 5) answer.write('event: gap\ndata: {"node":"0","node_name":"mq-1","count":7}\n\n');
  }, 500);
  answer.on("close", () => clearInterval(timer));
}

async function api(state, key, asked, answer, path, search) {
  const parts = [];
  for await (const part of asked) parts.push(part);
  const body = Buffer.concat(parts);
  const me = { user: state.user, key: null, role: state.role, csrf_token: state.token, ends_at: new Date(Date.now() + 12 * 3_600_000).toISOString() };
  if (path === "login") {
    const { user, password } = JSON.parse(body);
    if (!ranks.includes(user) || password !== "try") return problem(answer, 401, "login-failed", "The user or the password is wrong");
    Object.assign(state, { role: user, user });
    return json(answer, { user, role: user, csrf_token: state.token, ends_at: me.ends_at });
  }
  if (path === "logout") { state.role = null; answer.writeHead(204); return answer.end(); }
  if (!state.role) return problem(answer, 401, "not-authenticated", "Nobody is signed in");
  if (path === "me") return json(answer, me);
  if (path === "events" && state.events) return events(answer, new URLSearchParams(search));
  if (state.failing?.(path)) return problem(answer, 500, "internal", "The node could not answer", { detail: "The store of this node does not answer. Try another node." });
  if (asked.method !== "GET") {
    if (asked.headers["x-csrf-token"] !== state.token) return problem(answer, 403, "csrf", "The CSRF token is missing");
    if (state.role === "viewer" && !["match", "lookup", "acl/test"].includes(path)) return problem(answer, 403, "no-right", "This needs an operator", { needs: "operator" });
  }
  const passed = request({ host: "127.0.0.1", port: state.node, method: asked.method, path: `/api/v1/${path}${search}`,
    headers: { authorization: `Bearer ${key}`, ...(body.length ? { "content-type": "application/json", "content-length": body.length } : {}) } }, (got) => {
    answer.writeHead(got.statusCode, got.headers);
    got.pipe(answer);
  });
  passed.on("error", () => problem(answer, 502, "no-node", "The node cannot be reached"));
  asked.on("close", () => {});
  answer.on("close", () => passed.destroy());
  passed.end(body.length ? body : undefined);
}
