// Serves dist/ of this folder with the headers of the broker, at / or below a prefix, and passes everything below api/v1/ on
// to a node as it is: the broker itself serves the dist/ that it was built with. A test may let a path fail.
import { createServer, request } from "node:http";
import { readFileSync, existsSync } from "node:fs";
import { join, dirname } from "node:path";
import { fileURLToPath } from "node:url";

const dist = join(dirname(fileURLToPath(import.meta.url)), "..", "dist");
const types = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
  json: "application/json",
  txt: "text/plain; charset=utf-8",
};
const headers = {
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
};
const policy = (connect) =>
  `default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src ${connect}; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'`;

/**
 * `node`: the HTTP port of the node; `forwarded`: say that requests come from
 * another machine, so that the node wants a login also for reading.
 * `state.inject`: takes path and request, and returns `{ status, headers, body }` instead of the node's answer, or nothing.
 * `state.asked`: the requests that came, each with `open` as long as it is answered.
 */
export function serve({ node, port = 0, prefix = "/", forwarded = false }) {
  const state = { node, forwarded, inject: null, asked: [] };
  const server = createServer((asked, answer) => {
    const url = new URL(asked.url, "http://localhost");
    if (!url.pathname.startsWith(prefix)) return problem(answer, 404, "unknown-path", "Unknown path");
    const path = url.pathname.slice(prefix.length);
    if (path.startsWith("api/v1/")) return pass(state, asked, answer, path.slice(7), url.search);
    file(asked, answer, path || "index.html");
  });
  return new Promise((done) =>
    server.listen(port, "127.0.0.1", () =>
      done({
        state,
        url: `http://127.0.0.1:${server.address().port}${prefix}`,
        close() {
          server.closeAllConnections();
          server.close();
        },
      }),
    ),
  );
}

function file(asked, answer, path) {
  const extension = path.split(".").pop();
  if (!/^(assets\/)?[\w.-]+$/.test(path) || !(extension in types) || !existsSync(join(dist, path)))
    return problem(answer, 404, "unknown-path", "Unknown path");
  const accepted = asked.headers["accept-encoding"] ?? "";
  const encoding = [
    ["br", ".br"],
    ["gzip", ".gz"],
  ].find(([name, end]) => accepted.includes(name) && existsSync(join(dist, path + end)));
  const host = asked.headers.host.replace(/:\d+$/, "");
  answer.writeHead(200, {
    ...headers,
    "Content-Security-Policy": policy(path === "try.html" ? `'self' ws://${host}:* wss://${host}:*` : "'self'"),
    "Content-Type": types[extension],
    Vary: "Accept-Encoding",
    "Cache-Control": path.startsWith("assets/") ? "public, max-age=31536000, immutable" : "no-cache",
    ...(encoding ? { "Content-Encoding": encoding[0] } : {}),
  });
  answer.end(readFileSync(join(dist, path + (encoding?.[1] ?? ""))));
}

export const problemBody = (status, name, title, more = {}) =>
  JSON.stringify({
    type: `urn:heraldmq:problem:${name}`,
    title,
    status,
    detail: `${title}.`,
    instance: "urn:heraldmq:request:0",
    ...more,
  });

function problem(answer, status, name, title) {
  answer.writeHead(status, { "Content-Type": "application/problem+json", "Cache-Control": "no-store" });
  answer.end(problemBody(status, name, title));
}

function pass(state, asked, answer, path, search) {
  const entry = { method: asked.method, path, search, at: Date.now(), open: true };
  state.asked.push(entry);
  answer.on("close", () => (entry.open = false));
  const injected = state.inject?.(path, asked);
  if (injected) {
    answer.writeHead(injected.status, { "Content-Type": "application/problem+json", ...injected.headers });
    asked.resume();
    return injected.open ? answer.write(injected.body) : answer.end(injected.body);
  }
  // Nodes close idle connections after some seconds, perhaps while the next request is sent on one.
  const passed = request(
    {
      agent: false,
      host: "127.0.0.1",
      port: state.node,
      method: asked.method,
      path: `/api/v1/${path}${search}`,
      headers: { ...asked.headers, ...(state.forwarded ? { "x-forwarded-for": "192.0.2.1" } : {}) },
    },
    (got) => {
      answer.writeHead(got.statusCode, got.rawHeaders);
      got.pipe(answer);
    },
  );
  passed.on("error", () => {
    if (answer.headersSent) answer.destroy();
    else problem(answer, 502, "no-node", "The node cannot be reached");
  });
  answer.on("close", () => passed.destroy());
  asked.pipe(passed);
}
