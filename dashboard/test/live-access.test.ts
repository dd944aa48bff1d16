// Users, groups and rules in a browser, on a broker that nobody has used; real clients prove what they change.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import mqtt from "mqtt";
import type { Browser, BrowserContext, Page } from "playwright-core";
// @ts-expect-error: plain JavaScript
import { nothingIsFound } from "../dev/axe.mjs";
// @ts-expect-error: plain JavaScript
import { open, watch } from "../dev/browser.mjs";
// @ts-expect-error: plain JavaScript
import { password, startCluster } from "../dev/cluster.mjs";
// @ts-expect-error: plain JavaScript
import { problemBody, serve } from "../dev/serve.mjs";
import { link } from "../src/navigation/route-text";

const roles = ["viewer", "administrator"] as const;
type Role = (typeof roles)[number];
let cluster: any, server: any, browser: Browser;
const signedIn = {} as Record<Role, Awaited<ReturnType<BrowserContext["storageState"]>>>;
const tokens = {} as Record<Role, string>;

before(async () => {
  // No chain of authenticators: the store alone says who is let in, as soon as it has a user.
  const settings = { allowAnonymous: undefined, authentication: undefined, authorization: { noMatch: "deny" } };
  cluster = await startCluster({
    size: 1,
    base: Number(process.env.DASHBOARD_PORTS ?? 26100) + 60,
    folder: process.env.DASHBOARD_FOLDER && `${process.env.DASHBOARD_FOLDER}-access`,
    settings,
  });
  server = await serve({ node: cluster.nodes[0].http });
  browser = await open();
  for (const role of roles) {
    const context = await browser.newContext();
    const login = await context.request.post(`${server.url}api/v1/login`, {
      data: { user: role, password: password(role) },
    });
    assert.equal(login.status(), 200);
    tokens[role] = (await login.json()).csrf_token;
    signedIn[role] = await context.storageState();
    await context.close();
  }
});
after(async () => {
  await browser?.close();
  server?.close();
  await cluster?.stop();
});

/** Runs with a page at this link; fails on whatever no page may do. */
async function at(hash: string, run: (page: Page) => Promise<void>, role: Role = "administrator") {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    reducedMotion: "reduce",
    storageState: signedIn[role],
  });
  context.setDefaultTimeout(30_000);
  const page = await context.newPage();
  const wrong: string[] = await watch(page, server.url);
  try {
    await page.goto(server.url + hash);
    await page.waitForSelector(`header .who >> text=${role}`);
    await run(page);
    assert.deepEqual(wrong, []);
  } finally {
    server.state.inject = null;
    await context.close();
  }
}

/** What another administrator does meanwhile. */
async function elsewhere(method: string, path: string, data: unknown, headers: Record<string, string> = {}) {
  const context = await browser.newContext({ storageState: signedIn.administrator });
  const answer = await context.request.fetch(`${server.url}api/v1${path}`, {
    method,
    data: data as object,
    headers: { "X-CSRF-Token": tokens.administrator, ...headers },
  });
  assert.ok(answer.ok(), `${answer.status()}: ${await answer.text()}`);
  await context.close();
}

const connect = (username: string | undefined, secret: string | undefined, clientId: string) =>
  mqtt.connectAsync(`mqtt://127.0.0.1:${cluster.nodes[0].mqtt}`, {
    protocolVersion: 5,
    clientId,
    reconnectPeriod: 0,
    connectTimeout: 10_000,
    ...(username === undefined ? {} : { username, password: secret }),
  });

const deed = (page: Page) => page.locator("dialog .buttons button").last();
const field = (page: Page, label: string) => page.locator(`dialog label:has-text("${label}") input`);
const says = (page: Page, pattern: RegExp) =>
  page.locator("main [role=status]", { hasText: pattern }).first().waitFor();
const would = (page: Page, pattern: RegExp) => page.locator("dialog .what-it-does", { hasText: pattern }).waitFor();
const closed = (page: Page) => page.waitForSelector("dialog[open]", { state: "detached" });

test("as long as nobody has changed anything, there is no audit", () =>
  at("#/audit", async (page) => {
    await page.locator(".answer", { hasText: "Nobody has changed anything yet." }).waitFor();
    await page
      .locator("main .empty", {
        hasText: "The audit begins with the first user, group, rule, person or key of the store.",
      })
      .waitFor();
    assert.equal(await page.locator("main .notice").count(), 0);
    await nothingIsFound(page, "no audit");
  }));

test("a group with a rule and a user with a password decide what a client may do", async () => {
  const anonymous = await connect(undefined, undefined, "anonymous");
  await anonymous.endAsync();
  await at("#/access?tab=groups", async (page) => {
    await page.locator(".answer", { hasText: "No user, group or rule was ever added." }).waitFor();
    await page.click("button >> text=Add a group…");
    await field(page, "Name").fill("meters");
    const rules = page.locator("dialog textarea").first();
    await rules.fill("# what meters send\nalow publish meters/%u/#");
    await page.locator("dialog .mistakes", { hasText: /Line 2: / }).waitFor();
    assert.match(await page.locator("dialog .numbered pre").first().innerText(), /✕2/);
    assert.equal(await deed(page).isDisabled(), true, "what the broker would refuse cannot be made");
    await rules.fill("# what meters send\nallow publish meters/%u/#");
    await would(page, /^Adds the group; no client is disconnected\.$/);
    assert.match(
      await page.locator("dialog .command-line code").innerText(),
      /^heraldmq user-group add --url=\S+ --rule='# what meters send' --rule='allow publish meters\/%u\/#' -- meters$/,
    );
    await deed(page).click();
    await closed(page);
    await says(page, /The group meters was added\./);
    await page.locator("main tbody th a", { hasText: "meters" }).waitFor();
  });
  await at("#/access", async (page) => {
    await page.locator(".empty", { hasText: "There are no users." }).waitFor();
    const withPassword: string[] = [];
    page.on("request", (request) => {
      if (request.postData()?.includes("correct horse")) withPassword.push(request.url());
    });
    await page.click("button >> text=Add a user…");
    await page.locator("dialog .notice.warn", { hasText: "This is the first user." }).waitFor();
    await field(page, "User name").fill("ann");
    await field(page, "Password").fill("correct horse battery");
    await page.check("dialog .choices label:has-text('meters') input");
    await would(page, /^Adds the user; no client is disconnected\.$/);
    assert.match(
      await page.locator("dialog .command-line").innerText(),
      /it asks for the password[^]*heraldmq user add --url=\S+ --group=meters -- ann/,
    );
    assert.doesNotMatch(await page.locator("dialog").innerText(), /correct horse/);
    await deed(page).click();
    await closed(page);
    await says(page, /The user ann was added\./);
    assert.deepEqual(
      withPassword,
      [`${server.url}api/v1/users`],
      "a password is sent when it is set, and in no dry run",
    );
    await page.locator(".answer", { hasText: "1 user and 1 group; this node's copy is current." }).waitFor();
  });
  const client = await connect("ann", "correct horse battery", "meter-1");
  await client.publishAsync("meters/ann/power", "1.2", { qos: 1 });
  await assert.rejects(client.publishAsync("meters/ben/power", "1.2", { qos: 1 }), /Not authorized/i);
  await assert.rejects(connect("ann", "a guess", "meter-2"), /(Not authorized|Bad User Name or Password)/i);
  await assert.rejects(connect(undefined, undefined, "anonymous"), /(Not authorized|Bad User Name or Password)/i);
  await at(link("user", { id: "ann" }), async (page) => {
    await page
      .locator(".answer", {
        hasText:
          "Clients can log in with a password; 0 rules of its own and 1 group come before the rules for everybody; 1 client is connected.",
      })
      .waitFor();
    await page.locator("main label", { hasText: "Topic or filter" }).locator("input").fill("meters/ann/power");
    await page.click("button >> text=Test");
    await says(page, /allowed: by a rule of the user or its groups, number 2\./);
    assert.match(await page.locator("main tr.chosen").innerText(), /2\s+group meters\s+allow publish meters\/%u\/#/);
  });
  await client.endAsync();
});

test("a generated secret is shown once, and who is disabled is disconnected", async () => {
  let secret = "";
  await at("#/access", async (page) => {
    await page.click("button >> text=Add a user…");
    await field(page, "User name").fill("meter-17");
    await page.selectOption("dialog select >> nth=0", "generate");
    await would(page, /^Adds the user/);
    await deed(page).click();
    secret = await page.locator("dialog [data-secret]").innerText();
    assert.match(secret, /^[\w-]{43}$/);
    await page.locator("dialog", { hasText: "It is not shown again" }).waitFor();
    await page.click("dialog button >> text=Close");
    await closed(page);
    assert.doesNotMatch(await page.content(), new RegExp(secret));
  });
  const client = await connect("meter-17", secret, "meter-17");
  const ended = new Promise((done) => client.once("close", () => done(null)));
  await at(link("access", { prefix: "meter-17" }), async (page) => {
    await page.locator("main tbody tr", { hasText: "meter-17" }).locator("button", { hasText: "Disable…" }).click();
    await would(page, /^Disables the user; 1 client is disconnected\.$/);
    assert.match(
      await page.locator("dialog .command-line code").innerText(),
      /^heraldmq user disable --url=\S+ -- meter-17$/,
    );
    await deed(page).click();
    await closed(page);
    await page.locator("main tbody tr", { hasText: "disabled" }).waitFor();
    await page.selectOption("main label:has-text('Logins') select", "true");
    await page.locator(".empty", { hasText: "No user matches." }).waitFor();
  });
  await ended;
  await assert.rejects(connect("meter-17", secret, "meter-17"), /(Not authorized|Bad User Name or Password)/i);
  await at(link("user", { id: "meter-17" }), async (page) => {
    await page.click("button >> text=Enable…");
    await would(page, /^Enables the user; /);
    await deed(page).click();
    await closed(page);
    await page.click("button >> text=Password…");
    await page.locator("dialog input[type=password]").fill("another one");
    await would(page, /^Replaces all passwords and secrets of the user; no client is disconnected\.$/);
    await deed(page).click();
    await closed(page);
    await says(page, /has another password/);
    await (await connect("meter-17", "another one", "meter-17")).endAsync();
    await page.click("button >> text=Remove…");
    await would(page, /^Removes the user; /);
    await deed(page).click();
    await closed(page);
    await page.locator(".answer", { hasText: "There is no user of this name" }).waitFor();
  });
});

test("a group in use is not removed, and the broker's reason stands in the dialog", () =>
  at("#/access?tab=groups", async (page) => {
    await page.locator("main tbody tr", { hasText: "meters" }).locator("button", { hasText: "Remove…" }).click();
    await page.locator("dialog .notice.bad", { hasText: "still in use" }).waitFor();
    assert.equal(await deed(page).isDisabled(), true);
    await page.click("dialog button >> text=Cancel");
  }));

test("rules for everybody are replaced, and nobody's text is lost", () =>
  at("#/access?tab=rules", async (page) => {
    await page.locator(".empty", { hasText: "There are no rules for everybody." }).waitFor();
    await page.click("main button >> text=Change…");
    const text = page.locator("main textarea");
    await text.fill('allow user "ann" subscribe plants/#\nallow nobody publish x');
    await page.locator(".mistakes", { hasText: /Line 2: / }).waitFor();
    const mine = 'allow user "ann" subscribe plants/#';
    await text.fill(mine);
    await page.locator(".what-it-does", { hasText: /^Adds the list of rules; no client is disconnected\.$/ }).waitFor();
    await elsewhere("PUT", "/rules", { lines: ["deny all subscribe secret/#"] }, { "If-Match": "*" });
    await page.click("main button >> text=Replace the rules…");
    await page.locator("dialog .notice.warn", { hasText: "Somebody else has changed this" }).waitFor();
    await page.click("dialog button >> text=Read it again");
    await closed(page);
    await page.locator(".their-change", { hasText: "+ deny all subscribe secret/#" }).waitFor();
    assert.equal(await text.inputValue(), mine);
    await page.click("button >> text=Go on with my text");
    await text.fill(`deny all subscribe secret/#\n${mine}`);
    await page.click("main button:enabled >> text=Replace the rules…");
    await would(page, /^Replaces the list of rules, also for connected clients; no client is disconnected\.$/);
    assert.equal(await page.locator("dialog .payload").innerText(), `+ ${mine}`);
    await deed(page).click();
    await closed(page);
    await says(page, /The rules for everybody were replaced\./);
    await page.waitForFunction(
      () =>
        document.querySelector("textarea")?.readOnly &&
        document.querySelector("textarea")?.value.split("\n").length === 2,
    );
    const client = await connect("ann", "correct horse battery", "reader");
    await client.subscribeAsync("plants/+", { qos: 1 });
    await assert.rejects(client.subscribeAsync("secret/+", { qos: 1 }));
    await client.endAsync();
  }));

test("what was typed stays when somebody else changes the user", () =>
  at(link("user", { id: "ann" }), async (page) => {
    await page.click("button >> text=Change…");
    await field(page, "Note").fill("until March");
    await would(page, /^Changes the user; no client is disconnected\.$/);
    await elsewhere("PUT", "/users/ann", { groups: ["meters"], class: "device" });
    await field(page, "Note").fill("until April");
    await page.locator("dialog .notice.warn", { hasText: "Somebody else has changed this" }).waitFor();
    await page.click("dialog button >> text=Read it again");
    await would(page, /^Changes the user/);
    assert.equal(await field(page, "Note").inputValue(), "until April");
    assert.equal(await field(page, "Class").inputValue(), "device");
    assert.match(
      await page.locator("dialog .command-line code").innerText(),
      /^heraldmq user set --url=\S+ --note='until April' -- ann$/,
    );
    await deed(page).click();
    await closed(page);
    await page.locator(".facts", { hasText: "until April" }).waitFor();
    assert.match(await page.locator(".facts").innerText(), /device/);
  }));

/** Runs a command as a shell reads it, with the key of the cluster. */
const run = (command: string) =>
  promisify(execFile)("bash", ["-c", `heraldmq() { "$HERALDMQ_BIN" "$@"; }; ${command}`], {
    env: { ...process.env, HERALDMQ_KEY_FILE: cluster.token },
  });

test("the command of a dialog makes the same change", async () => {
  const command = (page: Page) => page.locator("dialog .command-line code").innerText();
  await at(link("user", { id: "ann" }), async (page) => {
    await page.click("button >> text=Change…");
    await field(page, "Note").fill("it's $(id) \u202e");
    await field(page, "Class").fill("");
    await field(page, "Ends").fill("2099-12-31T23:00");
    await page.locator("dialog textarea").fill("# own\n\ndeny publish x");
    await page.uncheck("dialog .choices label:has-text('meters') input");
    await would(page, /^Changes the user/);
    await run(await command(page));
    await page.click("dialog button >> text=Cancel");
  });
  await at(link("user", { id: "ann" }), async (page) => {
    await page.locator(".facts", { hasText: "it's $(id) \\u{202e}" }).waitFor();
    assert.match(await page.locator(".facts").innerText(), /31 Dec 2099[^]*what else matches decides[^]*Groups\s+none/);
    assert.deepEqual(await page.locator("main tbody code").allInnerTexts(), ["# own", "", "deny publish x"]);
    await page.click("button >> text=Change…");
    await page.check("dialog .choices label:has-text('meters') input");
    await page.locator("dialog textarea").fill("");
    await would(page, /^Changes the user/);
    await run(await command(page));
    await page.click("dialog button >> text=Cancel");
    await page.locator(".facts a", { hasText: "meters" }).waitFor();
  });
  await at("#/access?tab=groups", async (page) => {
    await page.click("button >> text=Add a group…");
    await field(page, "Name").fill("by-command");
    await field(page, "Priority").fill("-5");
    await page.locator("dialog textarea").nth(1).fill("meters");
    await would(page, /^Adds the group/);
    await run(await command(page));
    await page.click("dialog button >> text=Cancel");
    const row = page.locator("main tbody tr", { hasText: "by-command" });
    await row.waitFor();
    assert.match(await row.innerText(), /by-command\s+-5\s+none\s+meters/);
    await row.locator("button", { hasText: "Remove…" }).click();
    await would(page, /^Removes the group/);
    await run(await command(page));
    await page.click("dialog button >> text=Cancel");
    await row.waitFor({ state: "detached" });
  });
});

test("who lacks the role sees everything, and why nothing can be changed", async () => {
  for (const [hash, button] of [
    ["access", "Add a user…"],
    ["access", "Disable…"],
    ["access?tab=groups", "Add a group…"],
    ["access?tab=rules", "Change…"],
    ["user?id=ann", "Password…"],
  ] as const)
    await at(
      `#/${hash}`,
      async (page) => {
        const one = page.locator("main button", { hasText: button }).first();
        await one.waitFor();
        assert.equal(await one.isDisabled(), true);
        assert.equal(await one.getAttribute("title"), "needs administrator");
      },
      "viewer",
    );
});

test("a node that cannot change anything says so", () =>
  at("#/access", async (page) => {
    await page.locator("main tbody tr").first().waitFor();
    server.state.inject = (path: string, asked: any) =>
      path.startsWith("users") &&
      asked.method !== "GET" && {
        status: 503,
        body: problemBody(503, "not-ready", "Not ready", { detail: "nothing was changed: no majority" }),
      };
    await page.locator("main tbody tr", { hasText: "ann" }).locator("button", { hasText: "Disable…" }).click();
    await page.locator("dialog .notice.bad", { hasText: "no majority" }).waitFor();
    assert.equal(await deed(page).isDisabled(), true);
    server.state.inject = null;
    await page.click("dialog button >> text=Retry");
    await would(page, /^Disables the user/);
    await page.click("dialog button >> text=Cancel");
    server.state.inject = (path: string) =>
      path === "control" && { status: 503, body: problemBody(503, "not-ready", "Not ready") };
    await page.locator("main .notice.bad", { hasText: "Not ready" }).waitFor();
  }));

test("what is not known, and what is not in force everywhere, is said", () =>
  at("#/access", async (page) => {
    const node = ((await (await page.request.get(`${server.url}api/v1/nodes`)).json()) as { items: { node: string }[] })
      .items[0]!.node;
    const answer = (given: object) =>
      (server.state.inject = (path: string, asked: any) =>
        path === "users/ann" && asked.method === "PUT" && !asked.url.includes("dry_run") && given);
    await page.locator("main tbody tr", { hasText: "ann" }).locator("button", { hasText: "Disable…" }).click();
    await would(page, /^Disables the user/);
    answer({ status: 504, body: problemBody(504, "node-silent", "A node is silent") });
    await deed(page).click();
    await page.locator("dialog .notice.warn", { hasText: "It is not known whether the change was made." }).waitFor();
    await page.click("dialog button >> text=Read it again");
    await page.waitForSelector("dialog .notice", { state: "detached" });
    await would(page, /^Disables the user/);
    answer({ status: 200, body: "{}", headers: { "Control-Missing": `${node}, feed` } });
    await deed(page).click();
    await closed(page);
    await says(page, /The user ann was disabled\. It is not in force yet at mq-1, feed\./);
  }));

test("a hostile name is text, and one segment of a path", async () => {
  const name = "a/../b?c=d#e <img src=x onerror=alert(1)> \u202e%2e";
  await elsewhere("POST", "/users", { name, generate: true, note: name });
  await elsewhere("POST", "/groups", { name: "g/<b>\u202e", note: "<b>" });
  await at("#/access?tab=groups", async (page) => {
    await page.locator("main tbody tr", { hasText: "g/<b>\\u{202e}" }).waitFor();
  });
  await at(link("access", { prefix: "a/.." }), async (page) => {
    await page.locator("main tbody th a").click();
    await page.locator("h1", { hasText: "User a/../b" }).waitFor();
    await page.waitForSelector(".facts");
    assert.equal(await page.locator("main img, main b").count(), 0);
    assert.doesNotMatch(await page.locator("main").innerText(), /\u202e/);
    await page.click("button >> text=Disable…");
    await would(page, /^Disables the user/);
    assert.equal(await page.locator("dialog img").count(), 0);
    await deed(page).click();
    await closed(page);
    await page.locator(".answer", { hasText: "Disabled: nobody can log in" }).waitFor();
    await page.click("button >> text=Remove…");
    await would(page, /^Removes the user/);
    await run(await page.locator("dialog .command-line code").innerText());
    await page.click("dialog button >> text=Cancel");
    await page.locator(".answer", { hasText: "There is no user of this name" }).waitFor();
  });
});

for (const [hash, shown, buttons] of [
  ["access", "main tbody tr", ["Add a user…", "Disable…"]],
  ["access?group=nobody", ".empty", []],
  ["access?tab=groups", "main tbody tr", ["Add a group…", "Change…", "Remove…"]],
  ["access?tab=rules", "main textarea", ["Change…"]],
  ["user?id=ann", ".facts", ["Change…", "Disable…", "Password…", "Remove…"]],
  ["user?id=nobody", ".answer >> text=There is no user", []],
] as const)
  test(`axe finds nothing on ${hash} and in its dialogs`, () =>
    at(`#/${hash}`, async (page) => {
      await page.waitForSelector(shown);
      await nothingIsFound(page, hash);
      for (const button of buttons) {
        await page.locator("main button", { hasText: button }).first().click();
        const inPlace = hash === "access?tab=rules";
        if (inPlace) await page.locator("main textarea").fill("allow nobody publish x");
        await page.waitForSelector(inPlace ? "main .mistakes" : "dialog[open] .what-it-does");
        if (!inPlace) await page.locator("dialog[open] .what-it-does", { hasNotText: "Asking" }).waitFor();
        await nothingIsFound(page, `${hash}, ${button}`);
        if (inPlace) continue;
        await page.keyboard.press("Escape");
        await closed(page);
      }
    }));

test("people of a file are listed, and changed there", async () => {
  await at("#/people", async (page) => {
    await page.locator(".answer", { hasText: "3 people, 0 keys; 1 can change everything." }).waitFor();
    const row = page.locator("main tbody tr", { hasText: "viewer" }).first();
    for (const button of ["Change…", "Password…", "Disable…", "Remove…"]) {
      const one = row.locator("button", { hasText: button });
      assert.equal(await one.isDisabled(), true);
      assert.match((await one.getAttribute("title"))!, /http\.userFile .*: change it there/);
    }
    await page.click("header button.who-name");
    await page.locator("dialog", { hasText: "heraldmq passwd FILE administrator" }).waitFor();
  });
  await at(
    "#/people",
    async (page) => {
      await page
        .locator(".answer", {
          hasText: "Only administrators see who may look at this cluster and change it; you are a viewer.",
        })
        .waitFor();
      await page.click("header button.who-name");
      for (const [label, text] of [
        ["Old password", password("viewer")],
        ["New password", "a long password"],
        ["The same again", "a long password"],
      ] as const)
        await field(page, label).fill(text);
      await deed(page).click();
      await page.locator("dialog", { hasText: "heraldmq passwd FILE viewer" }).waitFor();
    },
    "viewer",
  );
});
