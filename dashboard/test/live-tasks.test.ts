// What operators come for, each within four inputs: by mouse, and by keyboard alone.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser, BrowserContext, Page } from "playwright-core";
// @ts-expect-error: plain JavaScript
import { open, watch } from "../dev/browser.mjs";
// @ts-expect-error: plain JavaScript
import { password, startCluster } from "../dev/cluster.mjs";
// @ts-expect-error: plain JavaScript
import { Client } from "../dev/mqtt.mjs";
// @ts-expect-error: plain JavaScript
import { serve } from "../dev/serve.mjs";

/** Clients that have left their sessions; fewer while a test is written. */
const sensors = Number(process.env.SENSORS ?? 100_000);
let cluster: any, server: any, browser: Browser, load: ReturnType<typeof setInterval>;
let signedIn: Awaited<ReturnType<BrowserContext["storageState"]>>;

before(async () => {
  cluster = await startCluster({
    size: 3,
    base: Number(process.env.DASHBOARD_PORTS ?? 26100),
    folder: process.env.DASHBOARD_FOLDER && `${process.env.DASHBOARD_FOLDER}-tasks`,
  });
  server = await serve({ node: cluster.nodes[0].http });
  browser = await open();
  const context = await browser.newContext();
  const login = await context.request.post(`${server.url}api/v1/login`, {
    data: { user: "operator", password: password("operator") },
  });
  assert.equal(login.status(), 200);
  signedIn = await context.storageState();
  await context.close();

  let next = 0;
  await Promise.all(
    Array.from({ length: 60 }, async () => {
      while (next < sensors) (await connect(next, `sensor-${String(next++).padStart(6, "0")}`)).close();
    }),
  );
  // One that broke off, one that does not acknowledge, and one whose filter is not quite that of the topic.
  (await connect(1, "sensor-051207")).socket.destroy();
  const slow = await connect(0, "telemetry-hub", { acks: false, receiveMaximum: 20 });
  slow.subscribe("plant/+/state");
  (await connect(2, "hmi-9")).subscribe("plant/4/State");
  const press = await connect(0, "press-4", { session: 0 });
  load = setInterval(() => press.publish("plant/4/state", "runs", { qos: 1 }), 20);
});
after(async () => {
  clearInterval(load);
  await browser?.close();
  server?.close();
  await cluster?.stop();
});

const connect = (node: number, id: string, more = {}) =>
  new Client(cluster.nodes[node % 3].mqtt, id, { session: 3600, ...more }).open();

/** Counts what a person does: a click, a command of the keyboard, or a text with Enter and the key that begins it. */
class Inputs {
  count = 0;
  constructor(
    readonly page: Page,
    readonly keyboardAlone: boolean,
  ) {}
  async click(selector: string) {
    assert.ok(!this.keyboardAlone, "the keyboard alone was meant");
    this.count++;
    await this.page.click(selector);
  }
  /** `g q`: keys of one command, one after the other. */
  async command(keys: string) {
    this.count++;
    for (const key of keys.split(" ")) await this.page.keyboard.press(key);
  }
  async enter(text: string) {
    this.count++;
    await this.page.keyboard.type(text);
    await this.page.keyboard.press("Enter");
  }
}

interface Task {
  name: string;
  mouse(inputs: Inputs): Promise<void>;
  keyboard(inputs: Inputs): Promise<void>;
  /** Resolves when the answer is seen. */
  seen(page: Page): Promise<unknown>;
  prepare?(): Promise<void>;
  /** What has to be undone, when the task is over. */
  afterwards?(page: Page): Promise<void>;
}

const says = (page: Page, selector: string, pattern: RegExp) =>
  page.waitForFunction(
    ([selector, source]) => new RegExp(source!).test(document.querySelector<HTMLElement>(selector!)?.innerText ?? ""),
    [selector, pattern.source] as const,
    { polling: 50 },
  );
const titled = (page: Page, title: string) =>
  page.waitForFunction((title) => document.querySelector("h1")?.innerText === title, title, { polling: 50 });
const search = "#search";

let moved: any[] = [];
const tasks: Task[] = [
  {
    name: "find one of a hundred thousand clients, and see why it last left",
    async mouse(inputs) {
      await inputs.click(search);
      await inputs.enter("sensor-051207");
    },
    async keyboard(inputs) {
      await inputs.enter("/sensor-051207");
    },
    seen: (page) => says(page, ".answer", /^Away for .*; it left mq-2: the connection was closed without DISCONNECT/),
  },
  {
    name: "see who is slow, and what is queued for it",
    async mouse(inputs) {
      await inputs.click("nav >> text=Queues");
      await inputs.click("main tbody th a");
    },
    async keyboard(inputs) {
      await inputs.command("g q");
      await inputs.page.waitForSelector("main tbody th a");
      await inputs.command("j");
      await inputs.command("Enter");
    },
    async seen(page) {
      await titled(page, "Client telemetry-hub");
      await says(page, ".answer", /^Connected to mq-1 .*; [\d,]+ messages wait for it/);
      await says(page, "main tbody tr", /plant\/4\/state/);
    },
  },
  {
    name: "find out why a message did not arrive",
    async mouse(inputs) {
      await inputs.click("nav >> text=Topics");
      await inputs.page.waitForSelector("label:has-text('Topic') input:focus");
      await inputs.enter("plant/4/state");
      await inputs.click("label:has-text('Explain for client') input");
      await inputs.enter("hmi-9");
    },
    async keyboard(inputs) {
      await inputs.enter("/plant/4/state");
      await inputs.page.waitForSelector("label:has-text('Explain for client') input:focus");
      await inputs.enter("hmi-9");
    },
    seen: (page) => says(page, "main .notice.warn", /hmi-9 does not get it: .*Its closest filter is plant\/4\/State/),
  },
  {
    name: "see which shard is hot, and what is done about it",
    async mouse(inputs) {
      await inputs.click("nav >> text=Shards");
    },
    async keyboard(inputs) {
      await inputs.command("g h");
    },
    seen: (page) =>
      says(
        page,
        ".answer",
        /Load: mq-1 \d+ %, mq-2 \d+ %, mq-3 \d+ %\. (inbox|session|retain) \d+ has the highest load, [\d.<]+ % of a core; not split: \w/,
      ),
  },
  {
    name: "drain a node, and watch it become empty",
    async prepare() {
      moved = await Promise.all(Array.from({ length: 20 }, (_, n) => connect(2, `moved-${n}`, { session: 0 })));
    },
    async mouse(inputs) {
      await inputs.click("nav >> text=Nodes");
      await inputs.click("main tbody tr:has-text('mq-3') button >> text=Drain…");
      await inputs.click("dialog button >> text=Drain mq-3");
    },
    async keyboard(inputs) {
      await inputs.enter("/mq-3");
      await inputs.page.waitForSelector("main tr.chosen");
      await inputs.command(".");
      await inputs.command("Enter");
      await inputs.page.waitForSelector("dialog button.primary:focus");
      await inputs.command("Enter");
    },
    async seen(page) {
      await says(page, ".answer", /mq-3 is draining/);
      await says(page, "main tbody tr:nth-child(3)", /0 clients and 0 led shards left/);
    },
    async afterwards(page) {
      await page.focus("main tbody tr:nth-child(3) button >> text=End drain");
      await page.keyboard.press("Enter");
      await page.waitForFunction(
        () => !document.querySelector<HTMLElement>("main table")!.innerText.includes("draining"),
      );
      for (const client of moved) client.close();
    },
  },
  {
    name: "watch the events of one client",
    async mouse(inputs) {
      await inputs.click(search);
      await inputs.enter("sensor-000042");
      await inputs.click(".tabs >> text=Events");
    },
    async keyboard(inputs) {
      await inputs.enter("/sensor-000042");
      await inputs.page.waitForSelector(".tabs");
      await inputs.command("5");
    },
    async seen(page) {
      await says(page, "main", /Live: new events appear at the top/);
      const client = await connect(1, "sensor-000042");
      await says(page, "main tbody tr", /client connected\s+mq-2\s+sensor-000042/);
      client.close();
      await says(page, "main tbody tr", /client disconnected\s+mq-2\s+sensor-000042/);
    },
  },
];

for (const task of tasks)
  for (const way of ["mouse", "keyboard"] as const)
    test(`${task.name}, by ${way}`, async () => {
      await task.prepare?.();
      const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, storageState: signedIn });
      try {
        const page = await context.newPage();
        page.setDefaultTimeout(60_000);
        const wrong: string[] = await watch(page, server.url);
        await page.goto(server.url);
        await page.waitForSelector("header .who >> text=operator");
        const inputs = new Inputs(page, way === "keyboard");
        await task[way](inputs);
        await task.seen(page);
        assert.ok(inputs.count <= 4, `it took ${inputs.count} inputs`);
        await task.afterwards?.(page);
        assert.deepEqual(wrong, []);
      } finally {
        await context.close();
      }
    });
