// Takes pictures of all pages, into target/screenshots; those that documents show are in docs/images/dashboard, and are copied there
// when a release is made. DASHBOARD_URL names a dashboard that runs, such as that of dev/try.mjs; without
// it, a cluster is started and given some minutes, and in the end one of its nodes is killed for the pictures `…-down.png`.
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { open } from "./browser.mjs";
import { password } from "./cluster.mjs";

const folder = join(dirname(fileURLToPath(import.meta.url)), "../../target/screenshots");
const hashes = {
  overview: "overview",
  events: "events",
  clients: "clients?prefix=press",
  client: "client?id=telemetry-hub&tab=queue",
  rights: "client?id=telemetry-hub&tab=rights",
  queues: "queues",
  busiest: "top",
  drops: "drops",
  topics: "topics?topic=plant/4/state&qos=1&from=press-4&why=hmi-9",
  subscriptions: "subscriptions?prefix=plant",
  "shared-groups": "shared-groups",
  retained: "retained?topic=plant/3/config",
  nodes: "nodes",
  shards: "shards?shard=inbox%200",
  listeners: "listeners",
  settings: "settings?name=limits.session",
  bans: "bans",
  alarms: "alarms",
  try: "try.html",
};
const wanted = process.argv.slice(2);

/** What somebody does who tries it. */
async function tryIt(page) {
  await page.waitForFunction(() => document.querySelector("input[list]").value !== "");
  await page.click("button >> text=Connect");
  await page.waitForSelector(".packet-list");
  await page.fill("section[aria-label=Subscribe] input >> nth=0", "plant/+/alarm");
  await page.click("section[aria-label=Subscribe] button[type=submit]");
  await page.fill("section[aria-label=Publish] input >> nth=0", "plant/4/alarm");
  await page.fill("section[aria-label=Publish] textarea", '{"pressure": 9.2, "unit": "bar"}');
  await page.click("section[aria-label=Publish] button[type=submit]");
  await page.waitForTimeout(1000);
  await page.evaluate("scrollTo(0, 0)");
}

/** Bans and refused logins for the page that lists them. */
async function ban(request, { csrf_token }) {
  for (const of of [
    { user: "plant-z", reason: "its key was published" },
    { client: "probe-4711", reason: "connects every second" },
  ])
    if (
      !(
        await request.post(`${url}api/v1/bans`, {
          headers: { "X-CSRF-Token": csrf_token },
          data: { ...of, seconds: 86_400 },
        })
      ).ok()
    )
      throw new Error("The ban failed");
  for (const user of ["olga", "administrator"])
    await request.post(`${url}api/v1/login`, { data: { user, password: "a guess" } });
}

const taken = [];

const own = process.env.DASHBOARD_URL ? null : await start();
const url = process.env.DASHBOARD_URL ?? own.url;
const browser = await open();
mkdirSync(folder, { recursive: true });
for (const [narrow, width, height] of [
  ["", 1280, 800],
  ["-narrow", 390, 844],
])
  for (const colorScheme of ["light", "dark"])
    await takeAll({ viewport: { width, height }, colorScheme }, `${colorScheme}${narrow}`);
if (own) {
  own.nodes[2].process.kill("SIGKILL");
  await new Promise((done) => setTimeout(done, 20_000));
  await takeAll({ viewport: { width: 1280, height: 800 }, colorScheme: "light" }, "down");
}
await browser.close();
await own?.stop();
if (spawnSync("pngquant", ["--version"]).status === 0)
  for (const name of taken)
    execFileSync("pngquant", ["--force", "--ext", ".png", "--speed", "1", "--strip", "128", join(folder, name)]);

async function takeAll(options, end) {
  const context = await browser.newContext({ ...options, reducedMotion: "reduce" });
  const login = await context.request.post(`${url}api/v1/login`, {
    data: { user: "administrator", password: password("administrator") },
  });
  if (!login.ok()) throw new Error(`The login failed: ${login.status()}`);
  if (own && taken.length === 0) await ban(context.request, await login.json());
  for (const [name, hash] of Object.entries(hashes).filter(([name]) => wanted.length === 0 || wanted.includes(name))) {
    const page = await context.newPage();
    await page.goto(name === "try" ? url + hash : `${url}#/${hash}`);
    if (name === "try") await tryIt(page);
    await page.waitForTimeout(["overview", "drops"].includes(name) ? 6000 : 2500);
    if (name === "nodes") await page.click("main tbody a");
    await page.waitForTimeout(300);
    taken.push(`${name}-${end}.png`);
    await page.screenshot({ path: join(folder, taken.at(-1)) });
    await page.close();
  }
  await context.close();
}

async function start() {
  const { startCluster } = await import("./cluster.mjs");
  const { pause, seed } = await import("./seed.mjs");
  const { serve } = await import("./serve.mjs");
  const cluster = await startCluster({ base: 26200 });
  const load = await seed(cluster.nodes);
  const server = await serve({ node: cluster.nodes[0].http });
  await pause(1000 * Number(process.env.SECONDS ?? 900));
  return {
    url: server.url,
    nodes: cluster.nodes,
    async stop() {
      load.stop();
      server.close();
      await cluster.stop();
    },
  };
}
