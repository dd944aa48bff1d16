// The dashboard as brokers serve it, with real logins and events.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, BrowserContext, Page } from "playwright-core";
// @ts-expect-error: plain JavaScript
import { open, watch } from "../dev/browser.mjs";
// @ts-expect-error: plain JavaScript
import { password, startCluster } from "../dev/cluster.mjs";
// @ts-expect-error: plain JavaScript
import { Client } from "../dev/mqtt.mjs";
import { link } from "../src/navigation/route-text";

let cluster: any, browser: Browser;

before(async () => {
  cluster = await startCluster({
    size: 2,
    base: Number(process.env.DASHBOARD_PORTS ?? 26100) + 50,
    folder: process.env.DASHBOARD_FOLDER && `${process.env.DASHBOARD_FOLDER}-broker`,
  });
  browser = await open();
});
after(async () => {
  await browser?.close();
  await cluster?.stop();
});

const base = (node: number) => `http://127.0.0.1:${cluster.nodes[node].http}/`;

/** Runs with a page of a node; fails on whatever no page may do. */
async function at(context: BrowserContext, node: number, hash: string, run: (page: Page) => Promise<void>) {
  const page = await context.newPage();
  const wrong: string[] = await watch(page, base(node));
  await page.goto(base(node) + hash);
  await page.waitForSelector("main h1");
  await run(page);
  assert.deepEqual(wrong, []);
  await page.close();
}

async function signIn(page: Page, name: string, secret = password(name)) {
  if ((await page.locator("dialog[open]").count()) === 0) await page.click("button >> text=Sign in");
  await page.fill("dialog input >> nth=0", name);
  await page.fill("dialog input >> nth=1", secret);
  await page.keyboard.press("Enter");
}

async function withContext(run: (context: BrowserContext) => Promise<void>) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce" });
  context.setDefaultTimeout(60_000);
  try {
    await run(context);
  } finally {
    await context.close();
  }
}

const client = (name: string) => new Client(cluster.nodes[0].mqtt, name, { session: 600 }).open();

test("a cluster that nobody has used says where clients connect, and how", () =>
  withContext(async (context) => {
    await at(context, 0, "", async (page) => {
      await signIn(page, "viewer");
      const steps = page.locator(".first-steps");
      await steps.waitFor();
      const said = await steps.innerText();
      assert.match(said, new RegExp(`127\\.0\\.0\\.1:${cluster.nodes[0].mqtt} \\(MQTT\\)`));
      assert.match(
        said,
        new RegExp(
          `heraldmq pub -h 127\\.0\\.0\\.1 -p (${cluster.nodes.map((node: any) => node.mqtt).join("|")}) -t hello -m world`,
        ),
      );
    });
  }));

test("an operator signs in, disconnects a client at another node, and signs out", () =>
  withContext(async (context) => {
    const held = await client("press-1");
    await at(context, 1, "", async (page) => {
      await signIn(page, "operator", "wrong");
      await page.waitForSelector("dialog .notice.bad");
      await page.fill("dialog input >> nth=1", password("operator"));
      await page.keyboard.press("Enter");
      await page.waitForSelector("header >> text=operator");
      await page.waitForSelector("dialog[open]", { state: "detached" });
      await page.goto(base(1) + link("client", { id: "press-1" }));
      await page.click("text=Disconnect");
      await page.click("button.danger");
      await page.waitForFunction(() =>
        document.querySelector<HTMLElement>(".answer")?.innerText.includes("The connection was closed."),
      );
      const cookies = await context.cookies();
      assert.deepEqual(
        cookies.map(({ name, httpOnly, sameSite }) => ({ name, httpOnly, sameSite })),
        [{ name: "hmq_session", httpOnly: true, sameSite: "Strict" }],
      );
      assert.equal(await page.evaluate("document.cookie"), "");
      // Cookies know no port: the other node is asked with the same one.
      await at(context, 0, "", async (other) => void (await other.waitForSelector("header >> text=operator")));
      await page.click("button >> text=Sign out");
      await page.waitForSelector("button >> text=Sign in");
      const old = await context.request.get(base(1) + "api/v1/me", {
        headers: { cookie: `hmq_session=${cookies[0]!.value}` },
      });
      assert.equal((await old.json()).user, null);
    });
    held.close();
  }));

test("what happens to a client is seen as it happens", () =>
  withContext(async (context) => {
    (await client("press-2")).close();
    await at(context, 1, link("client", { id: "press-2", tab: "events" }), seen);
  }));

async function seen(page: Page) {
  // The stream begins some time after the page: clients come until one is seen.
  const ends = Date.now() + 60_000;
  const rows = page.locator("main tbody tr");
  while ((await rows.count()) === 0) {
    assert.ok(Date.now() < ends, "no event came");
    (await client("press-2")).close();
    await page.waitForTimeout(300);
  }
  await page.waitForFunction(() =>
    /disconnected/.test(document.querySelector<HTMLElement>("main tbody")?.innerText ?? ""),
  );
}

test("no other site can show a page in a frame", () =>
  withContext(async (context) => {
    const page = await context.newPage();
    // Of the same machine, but another origin.
    await page.route("http://127.0.0.1:1/", (route) =>
      route.fulfill({ contentType: "text/html", body: `<iframe src="${base(0)}"></iframe>` }),
    );
    await page.goto("http://127.0.0.1:1/");
    await page.waitForTimeout(1_000);
    const frame = page.frames()[1];
    assert.equal(await frame?.locator("main h1").count(), 0);
  }));
