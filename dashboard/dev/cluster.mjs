// Starts one or three nodes on loopback, for trying the dashboard, its tests and its screenshots.
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync, openSync } from "node:fs";
import { join } from "node:path";
import { tmpdir } from "node:os";

const binary = process.env.HERALDMQ_BIN ?? "heraldmq";
export const key = "for-trying-only";

/** People who can log in at the API: each has its role for a name, and `password of NAME`. */
const people = ["viewer", "operator", "administrator"];
/** Users of MQTT clients, who have passwords of the same kind; clients without a user are let in as well. */
const users = ["plant-a", "operators", "services"];
/** Rules that hinder nothing that the load does. */
const rules = `# Who may do what; all else is allowed.
allow user "services" subscribe plant/#
deny user "services" publish plant/+/set
deny client "press-legacy" all
deny user "operators" retain plant/+/set
`;
export const password = (name) => `password of ${name}`;

/** `settings`: options of the configuration in the place of those below; `undefined` leaves an option out. */
export async function startCluster({
  size = 3,
  base = 26000,
  folder = join(tmpdir(), "heraldmq-dashboard"),
  settings = {},
} = {}) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const token = join(folder, "token");
  writeFileSync(token, key, { mode: 0o600 });
  const secret = join(folder, "secret");
  writeFileSync(secret, "a secret of a cluster that is only tried, and has no other use", { mode: 0o600 });
  const files = {
    token,
    secret,
    people: join(folder, "people"),
    users: join(folder, "users"),
    rules: join(folder, "rules"),
  };
  for (const [file, names] of [
    [files.people, people],
    [files.users, users],
  ])
    for (const name of names) {
      const added = spawnSync(binary, ["passwd", file, name], { input: password(name) });
      if (added.status !== 0) throw new Error(`heraldmq passwd: ${added.error ?? added.stderr}`);
    }
  writeFileSync(files.rules, rules);
  const nodes = [];
  for (let n = 1; n <= size; n++) {
    const node = { name: `mq-${n}`, mqtt: base + n, http: base + 10 + n, cluster: base + 20 + n, ws: base + 30 + n };
    // Nodes that are left over would answer in the place of these.
    const answers = await fetch(`http://127.0.0.1:${node.http}/healthz`).then(
      () => true,
      () => false,
    );
    if (answers) throw new Error(`something else answers at 127.0.0.1:${node.http}`);
    node.process = startNode(node, n === 1, folder, files, base + 21, settings);
    nodes.push(node);
  }
  // Whatever ends this process ends its nodes.
  process.on("exit", () => {
    for (const node of nodes) node.process.kill("SIGKILL");
  });
  const cluster = { nodes, key, token, folder, stop: () => stop(nodes) };
  await ready(cluster);
  return cluster;
}

function startNode(node, bootstrap, folder, { token, secret, people, users, rules: file }, seed, settings) {
  const place = join(folder, node.name);
  mkdirSync(place);
  const config = {
    bootstrap,
    allowAnonymous: true,
    authorization: { file, noMatch: "allow" },
    authentication: { chain: [{ kind: "passwordFile", file: users }] },
    mqttServerConfig: {
      tcpListener: { host: "127.0.0.1", port: node.mqtt },
      wsListener: { host: "127.0.0.1", port: node.ws },
    },
    clusterConfig: {
      env: "Test",
      host: "127.0.0.1",
      port: node.cluster,
      nodeName: node.name,
      seedEndpoints: `127.0.0.1:${seed}`,
      secretFile: secret,
    },
    http: {
      host: "127.0.0.1",
      port: node.http,
      tokenFile: token,
      userFile: people,
      operators: "operator",
      administrators: "administrator",
    },
    limits: { session: { queueMessages: 2000 } },
    ...settings,
  };
  writeFileSync(join(place, "conf.yml"), JSON.stringify(config));
  const log = openSync(join(place, "log"), "w");
  const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("HERALDMQ_")));
  return spawn(binary, ["serve", "--config", join(place, "conf.yml"), "--data-dir", join(place, "data")], {
    stdio: ["ignore", log, log],
    env: environment,
  });
}

async function ready({ nodes, folder }) {
  for (let tries = 0; tries < 720; tries++) {
    const ended = nodes.find((node) => node.process.exitCode !== null);
    if (ended) throw new Error(`${ended.name} has ended; its log is in ${folder}`);
    const answers = await Promise.all(
      nodes.map((node) =>
        fetch(`http://127.0.0.1:${node.http}/api/v1/health`)
          .then((r) => r.json())
          .catch(() => null),
      ),
    );
    if (answers.every((a) => a?.state === "ok" || (a?.nodes.length === nodes.length && a.nodes.every((n) => n.ok))))
      return;
    await new Promise((done) => setTimeout(done, 250));
  }
  throw new Error(`the nodes are not ready after three minutes; their logs are in ${folder}`);
}

async function stop(nodes) {
  await Promise.all(
    nodes.map(
      (node) =>
        new Promise((done) => {
          if (node.process.exitCode !== null || node.process.signalCode !== null) return done();
          node.process.once("exit", done);
          node.process.kill("SIGCONT");
          node.process.kill("SIGTERM");
          setTimeout(() => node.process.kill("SIGKILL"), 5000).unref();
        }),
    ),
  );
}
