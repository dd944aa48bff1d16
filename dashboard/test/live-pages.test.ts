// Every page in a browser, on real nodes under load.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { gunzipSync } from "node:zlib";
import type { Browser, BrowserContext, Page } from "playwright-core";
// @ts-expect-error: plain JavaScript
import { open, watch } from "../dev/browser.mjs";
// @ts-expect-error: plain JavaScript
import { password, startCluster } from "../dev/cluster.mjs";
// @ts-expect-error: plain JavaScript
import { hostile, longIdentifier, pause, seed } from "../dev/seed.mjs";
// @ts-expect-error: plain JavaScript
import { Client } from "../dev/mqtt.mjs";
// @ts-expect-error: plain JavaScript
import { problemBody, serve } from "../dev/serve.mjs";
import { visible } from "../src/words/format";
import { link } from "../src/navigation/route-text";

const axe = readFileSync("node_modules/axe-core/axe.min.js", "utf8");
let cluster: any, load: any, server: any, browser: Browser;
type Role = "viewer" | "operator" | "administrator";
/** What the browser has after each has signed in. */
const signedIn = {} as Record<Role, Awaited<ReturnType<BrowserContext["storageState"]>>>;

before(async () => {
  cluster = await startCluster({
    size: 3,
    base: Number(process.env.DASHBOARD_PORTS ?? 26100),
    folder: process.env.DASHBOARD_FOLDER && `${process.env.DASHBOARD_FOLDER}-test`,
  });
  load = await seed(cluster.nodes, { machines: 30, screens: 4 });
  server = await serve({ node: cluster.nodes[0].http });
  browser = await open();
  for (const role of ["viewer", "operator", "administrator"] as const) {
    await at(
      "",
      async (page) => {
        await page.click("button >> text=Sign in");
        await signIn(page, role);
        await until(page, `header .who >> text=${role}`);
        await page.waitForSelector("dialog[open]", { state: "detached" });
        signedIn[role] = await page.context().storageState();
      },
      { role: null },
    );
  }
});
after(async () => {
  await browser?.close();
  server?.close();
  load?.stop();
  await cluster?.stop();
});

/** Runs with a page at this link; fails on whatever no page may do. */
async function at(
  hash: string,
  run: (page: Page) => Promise<void>,
  { base = server, role = "administrator", clock = false }: { base?: any; role?: Role | null; clock?: boolean } = {},
) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    reducedMotion: "reduce",
    ...(role ? { storageState: signedIn[role] } : {}),
  });
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  const wrong: string[] = await watch(page, base.url);
  if (clock) await page.clock.install();
  try {
    await page.goto(base.url + hash);
    await page.waitForSelector("main h1");
    await run(page);
    assert.deepEqual(wrong, []);
  } finally {
    await context.close();
  }
}

async function signIn(page: Page, name: string, secret = password(name)) {
  await page.fill("dialog input >> nth=0", name);
  await page.fill("dialog input >> nth=1", secret);
  await page.keyboard.press("Enter");
}

const text = (page: Page, selector: string) => page.locator(selector).first().innerText();
const until = (page: Page, selector: string, timeout = 60_000) => page.waitForSelector(selector, { timeout });

const everyPage = [
  "overview",
  "alarms",
  "clients",
  "client?id=telemetry-hub",
  "client?id=telemetry-hub&tab=queue",
  "client?id=telemetry-hub&tab=drops",
  "client?id=telemetry-hub&tab=rights",
  "client?id=telemetry-hub&tab=events",
  "client?id=nobody",
  "queues",
  "top",
  "top?by=bytes",
  "drops",
  "drops?by=client",
  "drops?by=topic",
  "events",
  "events?kind=cluster&from=5m",
  "topics?topic=plant/4/state&qos=1&from=press-4&why=hmi-1",
  "subscriptions",
  "shared-groups",
  "shared-groups?group=%24share%2Fetl%2Fplant%2F%2B%2Ftemperature",
  "retained?topic=plant/3/config",
  "retained?filter=plant/%2B/config",
  "nodes",
  "profile",
  "outlets",
  "shards",
  "listeners",
  "settings",
  "bans",
  "access",
  "access?tab=groups",
  "access?tab=rules",
  "user?id=nobody",
  "audit",
  "nowhere",
];

/** What axe finds on the page as it is. */
const found = (page: Page) =>
  page.evaluate(`${axe}; axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] })
  .then(({ violations }) => violations.map(({ id, nodes }) => id + ": " + nodes.map((node) => node.html.slice(0, 160) + " " + node.any.map((one) => one.message).join()).slice(0, 3).join(" | ")))`);

for (const name of everyPage) {
  test(`${name} loads, and axe finds nothing`, () =>
    at(`#/${name}`, async (page) => {
      await pause(1500);
      assert.notEqual((await text(page, "h1")).trim(), "");
      for (const width of [1280, 390]) {
        await page.setViewportSize({ width, height: 800 });
        for (const colorScheme of ["light", "dark"] as const) {
          await page.emulateMedia({ colorScheme });
          assert.deepEqual(await found(page), [], `${width} ${colorScheme}`);
        }
        const wider = await page.evaluate(
          "document.documentElement.scrollWidth - document.documentElement.clientWidth",
        );
        assert.equal(wider, 0, `the page scrolls sideways at ${width}`);
      }
    }));
}

for (const [name, hash, button] of [
  ["help", "", "Help"],
  ["the table of a chart", "", "table"],
  ["a login", "", "Sign in"],
  ["the ban of anybody", "bans", "Ban…"],
  ["the end of a session", "client?id=archive", "End session…"],
  ["the ban of a client", "client?id=archive", "Ban…"],
  ["an emptied queue", "client?id=archive&tab=queue", "Empty queue…"],
  ["a drain", "nodes", "Drain…"],
  ["an eviction", "nodes", "Evict…"],
  ["a disconnection in the list", "clients", "Disconnect…"],
  ["an emptied queue in the list", "queues", "Empty queue…"],
  ["a transfer", "shards", "Move lead…"],
  ["a split", "shards", "Split…"],
] as const) {
  test(`axe finds nothing in the dialog of ${name}`, () =>
    at(
      `#/${hash}`,
      async (page) => {
        await page.locator(`button:has-text("${button}")`).first().click();
        await until(page, "dialog[open]");
        await pause(300);
        for (const width of [1280, 390]) {
          await page.setViewportSize({ width, height: 800 });
          for (const colorScheme of ["light", "dark"] as const) {
            await page.emulateMedia({ colorScheme });
            assert.deepEqual(await found(page), [], `${width} ${colorScheme}`);
          }
        }
        await page.keyboard.press("Escape");
        await page.waitForSelector("dialog[open]", { state: "detached" });
      },
      button === "Sign in" ? { role: null } : {},
    ));
}

test("the busiest clients and topics are named, and lead to their pages", () =>
  at("#/top", async (page) => {
    for (const label of ["Publishers", "Subscribers", "Topics", "Slowest deliveries"])
      await until(page, `table[aria-label="${label}"] tbody tr a`);
    await until(
      page,
      "main >> text=/ publishes the most, [0-9.,]+.s; .+ receives the most, .+; the slowest delivery took .+ms, to /",
    );
    const first = await page.locator('table[aria-label="Publishers"] tbody tr a').first().getAttribute("data-copy");
    await page.click("button >> text=bytes");
    await until(page, "main >> text=/ publishes the most, .+B.s/");
    await page.click('table[aria-label="Publishers"] tbody tr a');
    await until(page, "main nav.tabs, main .tabs");
    assert.ok(first && page.url().includes("#/client?id="));
  }));

test("another node is profiled: its threads, its memory, and its functions, which can be saved", () =>
  at("#/nodes", async (page) => {
    await page.click('table[aria-label="Nodes"] tbody a >> text=mq-2');
    await page.click("main a >> text=Profile");
    await page.waitForFunction(() => document.querySelector("h1")?.innerText === "Profile of mq-2");
    await until(page, 'table[aria-label="Threads"] tbody th >> text=loop-0');
    await until(
      page,
      "main .answer >> text=/^In the last [0-9]+ s, [0-9]+ threads used .*; the longest turn of a loop was one of loop-/",
    );
    await page.click('button:text-is("Count")');
    await until(page, 'table[aria-label="Memory by structure"] tbody th >> text=program files');
    await until(page, "main >> text=The rows together are the resident memory.");
    await page.selectOption("main select", "10");
    await page.click('button:text-is("Start")');
    await until(page, "main >> text=/The node samples for [0-9]+ s more/");
    // It takes longer than other answers may.
    await until(page, ".flames svg g");
    await until(page, 'table[aria-label="Functions"] tbody tr');
    assert.deepEqual(await found(page), []);
    const saved = async (name: string) => {
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.click(`button:text-is("Save ${name}")`),
      ]);
      assert.equal(download.suggestedFilename(), name);
      return readFileSync((await download.path())!);
    };
    const svg = (await saved("cpu.svg")).toString();
    assert.ok(svg.startsWith("<svg ") && svg.includes("<title>loop-0 ("), svg.slice(0, 400));
    assert.match(gunzipSync(await saved("cpu.pb.gz")).toString("latin1"), /nanoseconds[^]*loop-0/);
    assert.ok(JSON.parse((await saved("cpu.json")).toString()).places.length > 0);
  }));

test("who is no administrator is told so on the page of a profile, and finds no link to it", async () => {
  await at(
    "#/profile",
    async (page) => {
      await until(
        page,
        "main .answer >> text=Only administrators look into the process of a node; you are an operator.",
      );
      assert.equal(await page.locator("main table, main select").count(), 0);
    },
    { role: "operator" },
  );
  await at(
    "#/nodes",
    async (page) => {
      await page.click('table[aria-label="Nodes"] tbody a >> text=mq-2');
      await until(page, "main .checks");
      assert.equal(await page.locator("main a >> text=Profile").count(), 0);
    },
    { role: "operator" },
  );
});

test("a shared group leads to its members, and they to their pages", () =>
  at("#/shared-groups", async (page) => {
    await page.click('table[aria-label="Shared groups"] a >> text=etl');
    const members = 'table[aria-label="Members of $share/etl/plant/+/temperature"] tbody tr';
    await until(page, members);
    assert.equal(await page.locator(members).count(), 3);
    assert.deepEqual((await page.locator(`${members} th a`).allInnerTexts()).sort(), ["etl-1", "etl-2", "etl-3"]);
    assert.match(
      await page.locator('table[aria-label="Shared groups"] tr.chosen').innerText(),
      /etl.*\s3\s+0\s+[\d,]+\s.*served/s,
    );
    await page.click(`${members} th a`);
    await page.waitForFunction(() => document.querySelector("h1")?.innerText.startsWith("Client etl-"));
  }));

test("hostile identifiers and topics are text", async () => {
  for (const id of [...hostile, longIdentifier] as string[]) {
    await at(link("client", { id }), async (page) => {
      await until(page, ".facts");
      const heading = await text(page, "h1");
      assert.ok(id.length > 60 || heading.includes(visible(id)), `${heading} is not ${id.slice(0, 80)}`);
      assert.doesNotMatch(await text(page, "main"), /[\u200f\u202e]/, "no mark turns the line around");
      assert.equal(await page.locator("main img, main b").count(), 0);
      assert.match(await text(page, ".answer"), /Connected to mq-/);
    });
    if (id.length < 1000)
      await at(link("topics", { topic: `odd/${id}` }), async (page) => {
        await until(page, "main table");
        assert.equal(await page.locator("main img").count(), 0);
      });
  }
});

test("retained messages are a tree, and payloads are text", () =>
  at(link("retained", { topic: `odd/${hostile[0]}` }), async (page) => {
    await until(page, ".payload");
    assert.equal(await text(page, ".payload"), "<b>not bold</b>");
    await until(page, ".tree .tree .chosen");
    await page.click(".tree .toggle >> nth=0");
    await page.waitForSelector(".tree .tree", { state: "detached" });
    await page.click(".tree .toggle >> nth=1");
    await until(page, ".tree .tree");
  }));

test("keys", () =>
  at("", async (page) => {
    await page.keyboard.press("/");
    assert.equal(await page.evaluate("document.activeElement.id"), "search");
    await page.keyboard.type("gc?");
    assert.equal(await page.inputValue("#search"), "gc?", "keys do nothing else in a field");
    await page.keyboard.press("Escape");
    await page.keyboard.press("g");
    await page.keyboard.press("c");
    await page.waitForFunction(() => document.querySelector("h1")?.innerText === "Clients");
    await until(page, "main tbody a");
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector("h1")?.innerText.startsWith("Client "));
    await page.keyboard.press("?");
    await until(page, "dialog[open] kbd");
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("dialog").count(), 0);
    await page.keyboard.press("p");
    await page.waitForFunction(() => document.querySelector(".pause").innerText === "Resume");
  }));

test("the search box finds a client, a topic, a node and a page", () =>
  at("", async (page) => {
    for (const [typed, heading] of [
      ["press-17", "Client press-17"],
      ["plant/4/state", "Topics"],
      ["mq-2", "Nodes"],
      ["shards", "Shards"],
    ] as const) {
      await page.fill("#search", typed);
      await until(page, "#found a");
      await page.keyboard.press("Enter");
      await page.waitForFunction((expected) => document.querySelector("h1")?.innerText === expected, heading);
    }
  }));

test("a page that asks for nothing says when its login ends", () =>
  at(
    "#/",
    async (page) => {
      await until(page, "header .who >> text=administrator");
      await page.click("button >> text=Pause");
      const asked = () => server.state.asked.filter((one: any) => one.path === "me").length;
      await page.clock.fastForward(28 * 60_000);
      await page.waitForTimeout(1500);
      assert.equal(await page.locator("text=You will be signed out at").count(), 0);
      await page.clock.fastForward(70_000);
      await until(page, "main .notice.warn >> text=You will be signed out at");
      assert.deepEqual(await found(page), []);
      const before = asked();
      await page.click("button >> text=Stay signed in");
      await page.waitForSelector("text=You will be signed out at", { state: "detached" });
      assert.equal(asked(), before + 1);
    },
    { clock: true },
  ));

test("a prefix does not matter", async () => {
  const below = await serve({ node: cluster.nodes[1].http, prefix: "/mq/" });
  try {
    await at("#/clients", async (page) => void (await until(page, "main tbody a")), { base: below });
  } finally {
    below.close();
  }
});

test("without a session one signs in over the page, which goes on", async () => {
  const signedOut = await serve({ node: cluster.nodes[0].http, forwarded: true });
  try {
    await at(
      "#/clients",
      async (page) => {
        await until(page, "dialog[open]");
        await signIn(page, "viewer", "wrong");
        await until(page, "dialog .notice.bad");
        await page.fill("dialog input >> nth=1", password("viewer"));
        await page.keyboard.press("Enter");
        await until(page, "main tbody a");
        assert.equal(await page.locator("dialog").count(), 0);
        await page.goto(signedOut.url + link("client", { id: "press-1" }));
        const button = page.locator("button", { hasText: "Disconnect" });
        await button.waitFor();
        assert.equal(await button.isDisabled(), true);
        assert.equal(await button.getAttribute("title"), "needs operator");
        assert.deepEqual(
          await page.evaluate("Object.keys(localStorage).sort()"),
          ["heraldmq.hidden-columns", "heraldmq.keys", "heraldmq.theme", "heraldmq.zone"],
          "no secret is kept",
        );
      },
      { base: signedOut, role: null },
    );
  } finally {
    signedOut.close();
  }
});

test("what fails is said, the page stays, and goes on", () =>
  at("", async (page) => {
    await until(page, ".figure-value");
    await page.waitForFunction(() => document.querySelectorAll("main tbody tr").length === 3);
    server.state.inject = (path: string) =>
      path === "stats" && {
        status: 500,
        body: problemBody(500, "internal", "The node could not answer", {
          detail: "The store of this node does not answer. Try another node.",
        }),
      };
    await until(page, "main .notice.bad");
    assert.match(await text(page, "main .notice.bad"), /The node could not answer.*Try another node/);
    assert.equal(await page.locator("main tbody tr").count(), 3);
    server.state.inject = null;
    await page.waitForSelector("main .notice.bad", { state: "detached", timeout: 60_000 });
  }));

test("a node that does not answer is named, and its return is seen", () =>
  at("#/clients", async (page) => {
    await until(page, "main tbody a");
    cluster.nodes[2].process.kill("SIGSTOP");
    try {
      await until(page, "main .notice.warn");
      assert.match(await text(page, "main .notice.warn"), /mq-3/);
      await page.goto(server.url + "#/overview");
      await until(page, "main .notice.warn");
      assert.match(await text(page, ".figures"), /≥/);
    } finally {
      cluster.nodes[2].process.kill("SIGCONT");
    }
    await page.waitForSelector("main .notice.warn", { state: "detached", timeout: 60_000 });
  }));

/** A durable client that is connected: some have not outlasted the stop of their node. */
async function connected(): Promise<string> {
  const answer = await fetch(
    `http://127.0.0.1:${cluster.nodes[0].http}/api/v1/clients?prefix=press-&state=connected&durable=true&limit=1`,
  );
  const {
    items: [client],
  } = (await answer.json()) as { items: { client_id: string }[] };
  return client!.client_id;
}

test("a client is disconnected, and its session is ended", async () => {
  await at(link("client", { id: await connected() }), async (page) => {
    await page.click("text=Disconnect");
    await page.click("button.danger");
    await page.waitForFunction(() =>
      document.querySelector(".answer").innerText.includes("The connection was closed."),
    );
    await page.waitForFunction(() => document.querySelector(".answer").innerText.startsWith("Away"));
    await page.click("text=End session");
    assert.equal(await page.evaluate("document.activeElement.innerText"), "Cancel");
    await page.click("dialog button.danger");
    await page.waitForFunction(() =>
      document.querySelector(".answer").innerText.includes("is not connected and has no session"),
    );
  });
});

test("a token that has become old is asked for again, once", () =>
  at(
    "#/bans",
    async (page) => {
      // A session of its own: the login below ends it, and other tests share theirs.
      await page.click("button >> text=Sign in");
      await signIn(page, "administrator");
      await page.waitForSelector("dialog[open]", { state: "detached" });
      // Another tab signs in: the cookie is that of its session.
      const login = await page.request.post(`${server.url}api/v1/login`, {
        data: { user: "administrator", password: password("administrator") },
      });
      assert.equal(login.status(), 200);
      const before = server.state.asked.length;
      await page.click("text=Ban…");
      await page.fill("dialog label:has-text('Who') input", "press-token");
      await page.click("dialog button.danger");
      await until(page, "main tbody a >> text=press-token");
      const sent = server.state.asked.slice(before).filter((one: any) => one.method === "POST" && one.path === "bans");
      assert.equal(sent.length, 2);
      await page.click("main tbody button >> text=Remove");
      await page.click("main tbody button.primary");
      await page.waitForSelector("main tbody a", { state: "detached" });
    },
    { role: null },
  ));

test("a change is not repeated in the name of somebody else", () =>
  at(
    "#/bans",
    async (page) => {
      await page.click("button >> text=Sign in");
      await signIn(page, "operator");
      await page.waitForSelector("dialog[open]", { state: "detached" });
      const login = await page.request.post(`${server.url}api/v1/login`, {
        data: { user: "administrator", password: password("administrator") },
      });
      assert.equal(login.status(), 200);
      const before = server.state.asked.length;
      await page.click("text=Ban…");
      await page.fill("dialog label:has-text('Who') input", "press-other");
      await page.click("dialog button.danger");
      await until(page, "dialog .notice.bad");
      await until(page, "header .who >> text=administrator");
      const sent = server.state.asked.slice(before).filter((one: any) => one.method === "POST" && one.path === "bans");
      assert.equal(sent.length, 1);
    },
    { role: null },
  ));

test("a queue that is not empty wants its identifier typed", () =>
  at(link("client", { id: "archive" }), async (page) => {
    await page.click("text=End session");
    const deed = page.locator("dialog button.danger");
    assert.equal(await deed.isDisabled(), true);
    await page.fill("dialog input", "archive");
    assert.equal(await deed.isDisabled(), false);
    await page.click("dialog button >> text=Cancel");
  }));

test("a queue is emptied, and the session stays", () =>
  at(link("client", { id: "emptied", tab: "queue" }), async (page) => {
    await until(page, "main table tbody tr");
    await page.click("text=Empty queue");
    const deed = page.locator("dialog button.danger");
    assert.equal(await deed.isDisabled(), true);
    await page.fill("dialog input", "emptied");
    await deed.click();
    await until(page, "[role=status] >> text=5 messages were dropped.");
    await until(page, "text=The queue is empty.");
    await page.waitForFunction(() => document.querySelector(".answer").innerText.startsWith("Away"));
  }));

test("selected clients are disconnected, and the rows are ordered by a column", async () => {
  const id = await connected();
  await at(
    link("clients", { prefix: id }),
    async (page) => {
      await page.check("main tbody th input[type=checkbox]");
      await page.click("button >> text=Disconnect 1 client…");
      await page.click("dialog button.danger");
      await until(page, "main [role=status] >> text=1 connection was closed.");
    },
    { role: "operator" },
  );
  await at("#/clients?prefix=press-", async (page) => {
    await until(page, "main tbody tr >> nth=2");
    const names = () => page.locator("main tbody th a").allInnerTexts();
    const before = await names();
    await page.click("th button.sort >> text=Client");
    await page.click("th button.sort >> text=Client");
    assert.equal(await page.locator("th[aria-sort=descending]").count(), 1);
    assert.deepEqual(await names(), [...before].sort().reverse());
    await page.click("summary >> text=Columns");
    await page.uncheck(".columns-menu label:has-text('Address') input");
    assert.equal(await page.locator("main thead th", { hasText: "Address" }).count(), 0);
    await page.check(".columns-menu label:has-text('Address') input");
  });
});

test("what has happened is listed, by kind", () =>
  at("#/events?kind=clients", async (page) => {
    await until(page, "main tbody tr");
    assert.match(await text(page, "main tbody"), /client (connected|disconnected)/);
    await page.selectOption("label:has-text('Events') select", "cluster");
    await page.waitForFunction(() => location.hash.includes("kind=cluster"));
  }));

test("a client is disconnected in the list, by keyboard", async () => {
  const id = await connected();
  await at(
    link("clients", { prefix: id }),
    async (page) => {
      const row = page.locator("main tbody tr", { has: page.locator(`th a:text-is("${id}")`) });
      await row.locator("th a").focus();
      await page.keyboard.press(".");
      await page.keyboard.press("Enter");
      await until(page, "dialog[open]");
      assert.equal(await page.evaluate("document.activeElement.innerText"), "Cancel");
      await page.keyboard.press("Tab");
      await page.keyboard.press("Enter");
      await until(page, `main [role=status] >> text=The connection of ${id} was closed.`);
      await row.locator("td", { hasText: "away" }).waitFor();
      assert.equal(await row.locator("button").count(), 0, "who is away has no connection");
    },
    { role: "operator" },
  );
});

test("a queue is emptied in the list", () =>
  at(
    "#/queues",
    async (page) => {
      const row = page.locator("main tbody tr", { has: page.locator("th a:text-is('night-report')") });
      await row.waitFor();
      const waiting = Number((await row.locator("td").first().innerText()).replaceAll(",", ""));
      await row.locator("button", { hasText: "Empty queue…" }).click();
      await page.fill("dialog input", "night-report");
      await page.click("dialog button.danger");
      await until(page, "main [role=status] >> text=/^night-report: [\\d,]+ messages were dropped\\.$/");
      assert.ok(
        Number((await text(page, "main [role=status]")).match(/([\d,]+) messages/)![1]!.replaceAll(",", "")) >= waiting,
      );
      assert.deepEqual(await found(page), []);
    },
    { role: "operator" },
  ));

test("a drain is marked in the charts, also for whoever comes afterwards", async () => {
  const labels = (page: Page) =>
    page.locator("figure.chart .plot").evaluateAll((plots) => plots.map((plot) => plot.getAttribute("aria-label")!));
  await at("#/nodes", async (page) => {
    await page.click("main tbody tr:has-text('mq-3') button >> text=Drain…");
    await page.click("dialog button.primary");
    await page.click("button >> text=End drain", { timeout: 60_000 });
    await page.waitForFunction(
      () => !document.querySelector<HTMLElement>("main table")!.innerText.includes("draining"),
      undefined,
      { timeout: 60_000 },
    );
  });
  await at("#/", async (page) => {
    await page.waitForFunction(
      () => /mq-3 draining.*mq-3 up/.test(document.querySelector(".plot")!.getAttribute("aria-label")!),
      undefined,
      { timeout: 60_000 },
    );
    for (const label of await labels(page)) assert.equal(label.match(/mq-3 draining/g)?.length, 1, label);
    await page.locator("figure.chart", { hasText: "Time to acknowledge" }).locator("button >> text=table").click();
    assert.match(await text(page, "dialog thead"), /p50\s+p99\s+longest\s+mq-1 p99\s+mq-2 p99\s+mq-3 p99\s+Meanwhile/);
    assert.match(await text(page, "dialog tbody"), /mq-3 draining/);
  });
});

test("the overview keeps no stream of events", () =>
  at("#/", async (page) => {
    const streams = () => server.state.asked.filter((one: any) => one.path === "events");
    const ends = Date.now() + 60_000;
    const before = streams().length;
    while (streams().length < before + 2 || streams().some((one: any) => one.open)) {
      assert.ok(Date.now() < ends, "a stream stays open, or none is asked for");
      await pause(100);
    }
    assert.match(streams().at(-1).search, /after=/);
    assert.doesNotMatch(streams().at(-1).search, /-0-0/, "it goes on behind what it has read");
    assert.equal(await page.locator("main .notice").count(), 0);
  }));

test("charts of times may be logarithmic", () =>
  at("#/", async (page) => {
    const chart = page.locator("figure.chart", { hasText: "Time to acknowledge" });
    const log = chart.locator("button >> text=log");
    assert.equal(await log.getAttribute("aria-pressed"), "false");
    await log.click();
    assert.equal(await log.getAttribute("aria-pressed"), "true");
    assert.equal(await page.locator("button[aria-pressed=true] >> text=log").count(), 1);
    await page.waitForFunction(
      () =>
        / (ms|s)$/.test(
          [...document.querySelectorAll("figure.chart")]
            .find((one) => one.innerText.includes("Time to acknowledge"))
            .querySelector(".key-value").innerText,
        ),
      undefined,
      { timeout: 60_000 },
    );
  }));

test("damaged replicas are listed with what heals them and what a person has to do", () =>
  at("#/nodes", async (page) => {
    const real = (await (await page.request.get(`${server.url}api/v1/cluster`)).json()) as {
      node: string;
      nodes: { node: string; name: string; unusable_replicas?: number }[];
    };
    const other = real.nodes.find((node) => node.node !== real.node)!;
    other.unusable_replicas = 2;
    const damaged = [
      {
        store: "inbox",
        shard: 2,
        damage: "a block is damaged",
        seconds: 41,
        recovers_from: "other_replicas",
        state: "receives the table of the leader",
        received_bytes: 3_100_000,
      },
      {
        store: "retain",
        shard: 0,
        damage: "a file is damaged",
        seconds: 9,
        recovers_from: "nothing",
        state: "does not serve",
        action: "make the node anew",
      },
    ];
    const body = JSON.stringify({ ...real, damaged });
    server.state.inject = (path: string) =>
      path === "cluster" && { status: 200, headers: { "Content-Type": "application/json" }, body };
    const rows = "table[aria-label='Damaged replicas'] tbody tr";
    await until(page, rows);
    assert.match(
      await text(page, `${rows}:has-text('inbox 2')`),
      /41 s\s+from the other replicas: receives the table of the leader, 3\.1 MB so far\s+nothing\s+a block is damaged/,
    );
    assert.match(
      await text(page, `${rows}:has-text('retain 0')`),
      /9 s\s+from nothing: does not serve\s+make the node anew\s+a file is damaged/,
    );
    await until(page, `main li:has-text('${other.name} has 2 replicas that cannot be used')`);
    server.state.inject = null;
    await page.waitForSelector(rows, { state: "detached" });
  }));

test("an eviction says what it would cost before it can be done", () =>
  at("#/nodes", async (page) => {
    await page.click("button >> text=Evict >> nth=1");
    await until(page, "dialog .fact");
    assert.match(await text(page, "dialog dl"), /Connections\s+\d+ clients disconnected/);
    assert.equal(await page.locator("dialog button.danger").isDisabled(), true);
    await page.click("dialog button >> text=Cancel");
  }));

test("a node is drained, and the drain ended", () =>
  at("#/nodes", async (page) => {
    await page.click("button >> text=Drain >> nth=2");
    await until(page, "dialog .fact");
    await page.click("dialog button.primary");
    await page.click("button >> text=End drain", { timeout: 60_000 });
    await page.waitForFunction(() => !document.querySelector("main table").innerText.includes("draining"), undefined, {
      timeout: 60_000,
    });
  }));

interface ShardLed {
  store: string;
  shard: number;
  leader: string | null;
  leader_name: string;
  term: string;
  first_slot: number;
  last_slot: number;
  voters: { node: string; node_name: string }[];
}

/** The shards, once their leaders have stayed for two seconds. */
async function shardsAtRest(): Promise<ShardLed[]> {
  const ends = Date.now() + 60_000;
  for (let before = ""; ; await pause(2000)) {
    assert.ok(Date.now() < ends, "the leaders go on moving");
    const answer = await fetch(`http://127.0.0.1:${cluster.nodes[0].http}/api/v1/shards`);
    const { items } = (await answer.json()) as { items: ShardLed[] };
    const now = items
      .map((row) => `${row.store} ${row.shard} ${row.leader} ${row.term}`)
      .sort()
      .join();
    if (now === before && items.every((row) => row.leader !== null)) return items;
    before = now;
  }
}

const shardRow = (page: Page, name: string) =>
  page.locator("main tbody tr", { has: page.locator(`th a:text-is("${name}")`) });

test("a shard is split, and the new one is seen", async () => {
  const before = await shardsAtRest();
  const old = before.find((row) => row.store === "inbox" && row.shard === 0)!;
  const inboxes = before.filter((row) => row.store === "inbox").length;
  const slot = old.first_slot + Math.floor((old.last_slot - old.first_slot) / 2);
  await at("#/shards", async (page) => {
    await shardRow(page, "inbox 0").locator("button", { hasText: "Split…" }).click();
    assert.match(await text(page, "dialog dl"), new RegExp(`Slots\\s+${old.first_slot}–${old.last_slot}`));
    assert.equal(await page.evaluate("document.activeElement.innerText"), "Cancel", "Enter does not split");
    const deed = page.locator("dialog button.danger");
    for (const none of ["", "x", String(old.first_slot), String(old.last_slot + 1)]) {
      await page.fill("dialog input", none);
      assert.equal(await deed.isDisabled(), true, none);
    }
    await page.fill("dialog input", String(slot));
    assert.match(
      await text(page, "dialog dl"),
      new RegExp(
        `This shard keeps\\s+${old.first_slot}–${slot - 1}\\s+New shard\\s+inbox ${slot} with ${slot}–${old.last_slot}`,
      ),
    );
    await deed.click();
    await until(
      page,
      `main [role=status] >> text=inbox 0 was split: inbox ${slot} has the slots from ${slot} to ${old.last_slot}`,
    );
    await until(page, `main [role=status] >> text=The inbox store has ${inboxes + 1} shards.`);
    assert.match(await shardRow(page, `inbox ${slot}`).innerText(), new RegExp(`${slot}–${old.last_slot}\\s+mq-\\d`));
    assert.match(await shardRow(page, "inbox 0").innerText(), new RegExp(`${old.first_slot}–${slot - 1}\\s`));
    assert.match(await text(page, ".answer"), new RegExp(`inbox ${inboxes + 1} ·`));
    assert.deepEqual(await found(page), []);
  });
});

/** What the first chart of a shard says, once it names the node. */
async function loadOf(page: Page, shard: string, node: string) {
  const labels = () =>
    page
      .locator(`section[aria-label="${shard}"] .plot`)
      .evaluateAll((plots) => plots.map((plot) => plot.getAttribute("aria-label")!));
  const ends = Date.now() + 60_000;
  for (;;) {
    const [load] = await labels();
    if (load?.includes(`${node}: `)) return load;
    assert.ok(Date.now() < ends, `the load of ${shard} is not told by ${node}: ${load}`);
    await pause(500);
  }
}

test("another node leads a shard, by keyboard, and its row shows it, as does its load over time", async () => {
  const rows = await shardsAtRest();
  const led = (node: string) => rows.filter((row) => row.leader === node).length;
  // From one that leads more to one that leads less: the cluster sees no reason to undo it. Without a split there may be none.
  const moves = rows.flatMap((row) =>
    row.voters
      .filter((voter) => voter.node !== row.leader)
      .map((voter) => ({ row, voter, less: led(row.leader!) - led(voter.node) })),
  );
  const { row, voter } = moves.sort((a, b) => b.less - a.less)[0]!;
  const name = `${row.store} ${row.shard}`;
  await at(
    "#/shards",
    async (page) => {
      await shardRow(page, name).locator("th a").focus();
      await page.keyboard.press(".");
      assert.equal(await page.evaluate("document.activeElement.innerText"), "Move lead…");
      await page.keyboard.press("Enter");
      await until(page, "dialog[open]");
      assert.match(
        await text(page, "dialog dl"),
        new RegExp(`From\\s+${row.leader_name}: \\d+ shards? led, [\\d.<]+ % of a core`),
      );
      const choices = await page.locator("dialog option").allInnerTexts();
      assert.deepEqual(
        choices.map((one) => one.split(":")[0]).sort(),
        row.voters
          .filter((one) => one.node !== row.leader)
          .map((one) => one.node_name)
          .sort(),
      );
      await page.selectOption("dialog select", voter.node);
      await page.focus("dialog button.primary");
      assert.equal(await page.evaluate("document.activeElement.innerText"), `Make ${voter.node_name} the leader`);
      await page.keyboard.press("Enter");
      await page.waitForSelector("dialog[open]", { state: "detached" });
      assert.equal(await page.evaluate("document.activeElement.innerText"), "Move lead…", "the focus is where it was");
      await until(page, `main [role=status] >> text=${voter.node_name} leads ${name}.`);
      assert.equal(await shardRow(page, name).locator("td").nth(1).innerText(), voter.node_name);
      assert.deepEqual(await found(page), []);
      // It counts the same if others are asked.
      assert.equal(
        (await shardsAtRest()).find((one) => one.store === row.store && one.shard === row.shard)!.leader,
        voter.node,
      );
      await page.click(`main tbody th a:text-is("${name}")`);
      const load = await loadOf(page, name, voter.node_name);
      assert.match(
        load,
        new RegExp(`^Load of ${name}, % of a core, 60 minutes\\. .*${voter.node_name}: [\\d.<]+ %, between`),
      );
      assert.deepEqual(await found(page), []);
    },
    { role: "operator" },
  );
});

test("what the broker refuses to do with a shard, the dialog says in its words", () =>
  at("#/shards", async (page) => {
    server.state.inject = (path: string) =>
      path === "cluster/split" && {
        status: 409,
        body: problemBody(409, "conflict", "The state of the cluster does not allow it", {
          detail: "the replicas of the shard are being moved",
        }),
      };
    try {
      await shardRow(page, "retain 0").locator("button", { hasText: "Split…" }).click();
      await page.click("dialog button.danger");
      await until(page, "dialog .notice.bad >> text=the replicas of the shard are being moved");
      assert.equal(await page.locator("main [role=status]").first().innerText(), "", "nothing is said to have begun");
    } finally {
      server.state.inject = null;
    }
  }));

test("who may change shards", async () => {
  for (const [role, transfer, split] of [
    ["viewer", "needs operator", "needs administrator"],
    ["operator", null, "needs administrator"],
    ["administrator", null, null],
  ] as const) {
    await at(
      "#/shards",
      async (page) => {
        await until(page, `header .who >> text=${role}`);
        for (const [button, reason] of [
          ["Move lead…", transfer],
          ["Split…", split],
        ] as const) {
          const action = shardRow(page, "inbox 0").locator("button", { hasText: button });
          await action.waitFor();
          assert.equal((await action.getAttribute("title")) || null, reason);
          assert.equal(await action.isDisabled(), reason !== null);
        }
      },
      { role },
    );
  }
});

test("a ban is made and lifted", () =>
  at("#/bans", async (page) => {
    await page.click("text=Ban…");
    await page.fill("dialog label:has-text('Who') input", "press-legacy");
    await page.click("dialog button.danger");
    await until(page, "main tbody a >> text=press-legacy");
    await page.click("main tbody button >> text=Remove");
    await page.click("main tbody button.primary");
    await page.waitForSelector("main tbody a", { state: "detached" });
  }));

test("live events come", () =>
  at("", async (page) => {
    const id = "comes-and-goes";
    await page.goto(server.url + link("client", { id, tab: "events" }));
    const ends = Date.now() + 60_000;
    (await new Client(cluster.nodes[1].mqtt, id, { session: 600 }).open()).close();
    await page.reload();
    while ((await page.locator("main tbody tr").count()) === 0) {
      assert.ok(Date.now() < ends, "no event came");
      (await new Client(cluster.nodes[1].mqtt, id, { session: 600 }).open()).close();
      await pause(300);
    }
    await page.waitForFunction(() =>
      /client disconnected/.test(document.querySelector<HTMLElement>("main tbody")?.innerText ?? ""),
    );
  }));

test("a client of MQTT connects, subscribes, publishes, and shows what comes as text", () =>
  at("try.html", async (page) => {
    const listed = (what: string) => until(page, `.packet-list li >> text=${what}`);
    await page.waitForFunction(() => document.querySelector<HTMLInputElement>("input[list]")!.value !== "");
    assert.equal(await page.inputValue("input[list]"), `ws://127.0.0.1:${cluster.nodes[0].ws}/mqtt`);
    await page.click("button >> text=Connect");
    await listed("success (0x00)");
    assert.match(await text(page, ".answer"), /connected/);
    await page.fill("section[aria-label=Subscribe] input >> nth=0", "tried/#");
    await page.click("section[aria-label=Subscribe] button[type=submit]");
    await listed("granted QoS 1");
    const hostile = "<img src=x onerror=alert(1)> \u202e";
    await page.fill("section[aria-label=Publish] input >> nth=0", "tried/<b>it</b>");
    await page.fill("section[aria-label=Publish] textarea", hostile);
    await page.click("section[aria-label=Publish] button[type=submit]");
    await page.waitForFunction(() =>
      [...document.querySelectorAll<HTMLElement>(".packet-list li")].some((row) =>
        row.innerText.includes("PUBLISH received: tried/<b>it</b>"),
      ),
    );
    const came = await page.locator(".packet-list li", { hasText: "PUBLISH received" }).first().innerText();
    assert.ok(came.includes("QoS 1") && came.includes(visible(hostile)), came);
    assert.equal(await page.locator(".packet-list img, .packet-list b").count(), 0);
    // Bytes that are no text come as they were written.
    await page.selectOption("section[aria-label=Publish] select >> nth=1", "hexadecimal");
    await page.fill("section[aria-label=Publish] textarea", "00 ff");
    await page.click("section[aria-label=Publish] button[type=submit]");
    await page.waitForFunction(() =>
      [...document.querySelectorAll<HTMLElement>(".packet-list li")].some(
        (row) => row.innerText.includes("PUBLISH received") && row.innerText.includes("hex 00 ff"),
      ),
    );
    await page.fill("section[aria-label=Publish] textarea", "0");
    await page.click("section[aria-label=Publish] button[type=submit]");
    await until(page, "[role=alert] >> text=two digits");
    for (const width of [1280, 390]) {
      await page.setViewportSize({ width, height: 800 });
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        assert.deepEqual(await found(page), [], `${width} ${colorScheme}`);
      }
      assert.equal(
        await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"),
        0,
      );
    }
    await page.click("button >> text=Disconnect");
    await listed("Connection closed");
    await page.waitForFunction(() =>
      document.querySelector<HTMLElement>(".answer")!.innerText.includes("not connected"),
    );
    assert.deepEqual(
      await page.evaluate(
        "Object.keys(localStorage).filter((name) => !/^heraldmq\\.(theme|zone|keys|hidden-columns)$/.test(name))",
      ),
      [],
    );
  }));

test("without a WebSocket listener, messages are published through the API", async () => {
  const answer = await (
    await fetch(`http://127.0.0.1:${cluster.nodes[0].http}/api/v1/cluster`, {
      headers: { Authorization: `Bearer ${cluster.key}` },
    })
  ).json();
  const rows = [
    {
      node: answer.node,
      node_name: "mq-1",
      kind: "tcp",
      address: "127.0.0.1:1883",
      connections: 0,
      accepted: 0,
      refused: 0,
      failed_handshakes: 0,
      certificate: null,
    },
  ];
  server.state.inject = (path: string) =>
    path === "listeners" && {
      status: 200,
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ items: rows, next: null, partial: [], scanned: 1 }),
    };
  try {
    for (const role of ["operator", "viewer"] as const)
      await at(
        "try.html",
        async (page) => {
          await until(page, ".answer >> text=published through the HTTP API");
          await until(page, "section[aria-label=Receive] code >> text=heraldmq sub -h 127.0.0.1 -p 1883 -t '#'");
          const publish = page.locator("section[aria-label=Publish] button[type=submit]");
          if (role === "viewer") {
            await until(page, "section[aria-label=Receive] >> text=needs the role operator");
            assert.ok(await publish.isDisabled());
          } else {
            const subscriber = await new Client(cluster.nodes[1].mqtt, "hears-the-api").open();
            subscriber.subscribe("by-api/#");
            await page.fill("section[aria-label=Publish] input >> nth=0", "by-api/größe");
            await page.fill("section[aria-label=Publish] textarea", "höher");
            // The subscription may not have reached each node yet.
            const ends = Date.now() + 30_000;
            while ((await page.locator(".packet-list li", { hasText: "hears-the-api: delivered" }).count()) === 0) {
              assert.ok(Date.now() < ends, "the subscriber is not named");
              const told = await page.locator(".packet-list li", { hasText: "Receivers" }).count();
              await publish.click();
              await page.waitForFunction(
                (before) =>
                  [...document.querySelectorAll<HTMLElement>(".packet-list li")].filter((row) =>
                    row.innerText.includes("Receivers"),
                  ).length > before,
                told,
              );
            }
            await until(page, ".packet-list li >> text=success (0x00)");
            assert.match(await text(page, ".packet-list"), /POST \/publish sent: by-api\/größe/);
            subscriber.close();
          }
          for (const width of [1280, 390]) {
            await page.setViewportSize({ width, height: 800 });
            assert.deepEqual(await found(page), [], `${role} ${width}`);
            assert.equal(
              await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"),
              0,
            );
          }
        },
        { role },
      );
  } finally {
    server.state.inject = null;
  }
});

test("outlets: none, figures that are known, and a pause that is confirmed", async () => {
  await at("#/outlets", async (page) => void (await until(page, ".empty >> text=docs/operate/outlets.md")));
  const { items: nodes } = await (
    await fetch(`http://127.0.0.1:${cluster.nodes[0].http}/api/v1/nodes`, {
      headers: { Authorization: `Bearer ${cluster.key}` },
    })
  ).json();
  const nodeOf = (name: string) => nodes.find((one: any) => one.node_name === name).node;
  const figures = {
    lag_messages: 1234,
    lag_bytes: 56_789,
    oldest_at: new Date(Date.now() - 600_000).toISOString(),
    delivered: 98_765,
    left_out: 7,
    retries: 11,
    dead: 5,
    dropped: { dead_letter_unclaimed: 2, refused: 1, bridge_loop: 0 },
    filtered: 3,
    waiting_messages: 16,
    attempt: 4,
    position: "3.98765",
    delivered_at: new Date(Date.now() - 600_000).toISOString(),
    batch_ms: 2.5,
    last_error: "the server answers 503 \u202e<b>",
    failing_s: 601,
    process: 4711,
    starts: 2,
    last_end: "signal: 9",
  };
  const common = {
    direction: "out",
    target: "http",
    place: "https://example.com/in",
    filters: ["plant/#", "line/+"],
    dead_letter: "dead/hook",
  };
  const rows = [
    { ...common, name: "hook", state: "retrying", paused: false, node: nodeOf("mq-1"), figures },
    {
      ...common,
      name: "lake",
      target: "file",
      place: "/srv/lake.ndjson",
      dead_letter: null,
      state: "elsewhere",
      paused: null,
      node: nodeOf("mq-2"),
      figures: null,
    },
    { ...common, name: "lost", state: "elsewhere", paused: null, node: null, figures: null },
    {
      ...common,
      name: "site",
      direction: "in",
      target: "mqtt",
      place: "mqtt://site:1883",
      dead_letter: null,
      state: "running",
      paused: false,
      node: nodeOf("mq-1"),
      figures: {
        ...figures,
        lag_messages: null,
        lag_bytes: null,
        oldest_at: null,
        position: null,
        batch_ms: null,
        last_error: null,
        failing_s: null,
        attempt: 0,
      },
    },
    {
      ...common,
      name: "rest",
      state: "paused",
      paused: true,
      node: nodeOf("mq-1"),
      figures: { ...figures, last_error: null, failing_s: null, attempt: 0 },
    },
  ];
  const changed: string[] = [];
  server.state.inject = (path: string, asked: any) => {
    if (asked.method === "POST" && /^outlets\//.test(path)) changed.push(path);
    return asked.method === "POST" && /^outlets\//.test(path)
      ? { status: 204 }
      : path === "outlets" && {
          status: 200,
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ items: rows, next: null, partial: [], scanned: 4 }),
        };
  };
  try {
    for (const role of ["operator", "viewer"] as const)
      await at(
        "#/outlets",
        async (page) => {
          const row = (name: string) =>
            page.locator('table[aria-label="Outlets"] tbody tr', { has: page.locator("th", { hasText: name }) });
          await until(
            page,
            ".answer >> text=/^4 outlets, 1 inlet; hook fails; 1 outlet has no node, .* leader; 1 is paused\\.$/",
          );
          await page.waitForFunction(() =>
            document.querySelector('table[aria-label="Outlets"]')?.textContent?.includes("mq-2"),
          );
          assert.match(
            await row("hook").innerText(),
            /retrying\s+http https:\/\/example.com\/in\s+mq-1\s+1,234\s+98,765\s+5\s+3\s+the server answers 503 \\u\{202e\}<b>/,
          );
          assert.match(await row("lake").innerText(), /not known\s+file \/srv\/lake.ndjson\s+mq-2\s+–\s+–\s+–\s+–/);
          assert.match(await row("lost").innerText(), /no leader/);
          assert.deepEqual(await row("hook").locator("button").allInnerTexts(), ["Pause…"]);
          assert.deepEqual(await row("rest").locator("button").allInnerTexts(), ["Resume…"]);
          assert.deepEqual(await row("lake").locator("button").allInnerTexts(), ["Pause…", "Resume…"]);
          await row("hook").locator("th a").click();
          await until(page, "h2 >> text=Outlet hook");
          const facts = await text(page, ".facts");
          for (const said of [
            "plant/#, line/+",
            "dead/hook",
            "1,234 messages, 56.8 kB",
            "3.98765",
            "5, 2 without a subscriber",
            "1, which are dropped",
            "2.5 ms",
            "10 min",
            "4711",
            "signal: 9",
          ])
            assert.ok(facts.includes(said), `${said} in ${facts}`);
          for (const width of [1280, 390]) {
            await page.setViewportSize({ width, height: 800 });
            for (const colorScheme of ["light", "dark"] as const) {
              await page.emulateMedia({ colorScheme });
              assert.deepEqual(await found(page), [], `${role} ${width} ${colorScheme}`);
            }
            assert.equal(
              await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"),
              0,
            );
          }
          if (role === "viewer") {
            assert.ok(await row("hook").locator("button").isDisabled());
            return;
          }
          await row("hook").locator("button").click();
          await until(page, "dialog[open]");
          assert.deepEqual(changed, [], "nothing is done before it is confirmed");
          await page.click("dialog button >> text=/^Pause$/");
          await until(page, ".told >> text=The outlet hook is being paused.");
          await row("rest").locator("button").click();
          await page.click("dialog button >> text=/^Resume$/");
          await until(page, ".told >> text=The pause of the outlet rest has ended.");
          assert.deepEqual(changed, ["outlets/hook/pause", "outlets/rest/resume"]);
        },
        { role },
      );
  } finally {
    server.state.inject = null;
  }
});

test("a client's page shows its rates, its CONNECT and the rules that apply to it", () =>
  at(link("client", { id: "telemetry-hub", tab: "rights" }), async (page) => {
    const fact = (name: string) =>
      page
        .locator(".fact", { has: page.locator("dt", { hasText: new RegExp(`^${name}$`) }) })
        .locator("dd")
        .innerText();
    await page.waitForFunction(() =>
      [...document.querySelectorAll<HTMLElement>(".fact")].some(
        (row) => row.innerText.startsWith("Messages out") && row.innerText.includes("/s"),
      ),
    );
    assert.match(await fact("Messages in"), /^[\d.,]+\/s, [\d.,]+ k?B\/s$/);
    assert.deepEqual(await Promise.all(["Session expiry", "Receive max\\.", "Max\\. packet"].map(fact)), [
      "1 d",
      "20 in flight",
      "no limit",
    ]);
    await until(page, 'table[aria-label="Rules that apply"] code >> text=deny user "services" publish plant/+/set');
    assert.equal(await page.locator('table[aria-label="Rules that apply"] tbody tr').count(), 2);
    await page.fill("main form input", "plant/7/set");
    await page.click("main form button");
    await until(page, "main >> text=denied: by the rule file, line 3.");
    await until(page, 'table[aria-label="Rules that apply"] tr.chosen >> text=plant/+/set');
  }));

test("a client of MQTT says what it knows of a connection that fails", async () => {
  // The browser writes an error of its own, which no other page may have.
  const context = await browser.newContext({ storageState: signedIn.viewer });
  context.setDefaultTimeout(60_000);
  try {
    const page = await context.newPage();
    await page.goto(`${server.url}try.html`);
    await page.fill("input[list]", "ws://127.0.0.1:1/mqtt");
    await page.click("button >> text=Connect");
    await until(page, "[role=alert] >> text=closed before the broker answered");
    await until(page, ".packet-list li >> text=the broker did not answer");
    // An address that is none is said to be so.
    await page.fill("input[list]", "nonsense");
    await page.click("button >> text=Connect");
    await until(page, "[role=alert]");
    assert.match(await text(page, ".answer"), /not connected/);
  } finally {
    await context.close();
  }
});

test("a tab that is hidden has no stream, and asks for nothing", () =>
  at(link("client", { id: "telemetry-hub", tab: "events" }), async (page) => {
    const streams = (since: number) =>
      server.state.asked.filter((one: any) => one.path === "events" && one.open && one.at >= since);
    const asks = (path: string, since: number) =>
      server.state.asked.filter((one: any) => one.path === path && one.at >= since).length;
    const ends = Date.now() + 60_000;
    const eventually = async (what: string, is: () => boolean) => {
      while (!is()) {
        assert.ok(Date.now() < ends, what);
        await pause(50);
      }
    };
    const show = (hidden: boolean) =>
      page.evaluate(
        `Object.defineProperty(document, "hidden", { value: ${hidden}, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`,
      );
    const began = Date.now() - 5000;
    await eventually("the stream is opened", () => streams(began).length === 1);
    await show(true);
    await eventually("the stream is closed", () => streams(began).length === 0);
    // As long as another page asks five times for its figures, this one asks for nothing: what was under way has come.
    const hidden = Date.now() + 1000;
    await at("", async () => eventually("the other page asks", () => asks("stats", hidden) >= 5));
    assert.equal(asks("clients/telemetry-hub", hidden), 0);
    assert.equal(streams(hidden).length, 0);
    await show(false);
    await eventually("the stream is opened again", () => streams(hidden).length === 1);
    await eventually("the page asks again", () => asks("clients/telemetry-hub", hidden) > 0);
  }));

test("what the stream left out is said", async () => {
  server.state.inject = (path: string) =>
    path === "events" && {
      status: 200,
      open: true,
      headers: { "Content-Type": "text/event-stream" },
      body: 'event: hello\ndata: {}\n\nevent: gap\ndata: {"node":"0","node_name":"mq-1","count":7}\n\n',
    };
  try {
    await at(link("client", { id: "telemetry-hub", tab: "events" }), async (page) => {
      await page.waitForFunction(() =>
        document.querySelector("main")?.innerText.includes("mq-1 no longer has 7 events"),
      );
    });
  } finally {
    server.state.inject = null;
  }
});

test("nothing jumps in 20 s of live figures", () =>
  at("", async (page) => {
    await pause(4000);
    // A figure at the end of its column may get a digit more: its end stays.
    await page.evaluate(`window.shifts = []; new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) for (const { node, previousRect: before, currentRect: now } of entry.sources)
      if (Math.abs(before.top - now.top) > 1 || (Math.abs(before.left - now.left) > 1 && Math.abs(before.right - now.right) > 1))
        window.shifts.push((node?.nodeType === 3 ? node.parentElement : node)?.outerHTML?.slice(0, 120));
  }).observe({ type: "layout-shift" })`);
    await pause(20_000);
    assert.deepEqual(await page.evaluate("window.shifts"), []);
  }));
