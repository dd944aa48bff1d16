// The first administrator, people and keys in a browser, on a broker that nobody has used: without any file and without a key.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import mqtt from "mqtt";
import type { Browser, BrowserContext, Page } from "playwright-core";
// @ts-expect-error: plain JavaScript
import { nothingIsFound } from "../dev/axe.mjs";
// @ts-expect-error: plain JavaScript
import { open, watch } from "../dev/browser.mjs";
// @ts-expect-error: plain JavaScript
import { startCluster } from "../dev/cluster.mjs";
// @ts-expect-error: plain JavaScript
import { problemBody, serve } from "../dev/serve.mjs";

const base = Number(process.env.DASHBOARD_PORTS ?? 26100) + 100;
const secrets = {
  anna: "anna has a long password",
  carl: "known to anna as well",
  ofCarl: "known to carl alone",
  again: "known to carl alone 2",
};
/** `local`: as a browser on the machine of the node; `far`: as one on another machine, which has to sign in to read as well. */
let cluster: any, local: any, far: any, browser: Browser;
let anna: Awaited<ReturnType<BrowserContext["storageState"]>>;

before(async () => {
  const settings = {
    allowAnonymous: undefined,
    authentication: undefined,
    authorization: undefined,
    limits: undefined,
    clusterConfig: {
      env: "Test",
      host: "127.0.0.1",
      port: base + 21,
      nodeName: "mq-1",
      seedEndpoints: `127.0.0.1:${base + 21}`,
    },
    http: { host: "127.0.0.1", port: base + 11 },
  };
  cluster = await startCluster({
    size: 1,
    base,
    folder: process.env.DASHBOARD_FOLDER && `${process.env.DASHBOARD_FOLDER}-people`,
    settings,
  });
  [local, far] = [
    await serve({ node: cluster.nodes[0].http }),
    await serve({ node: cluster.nodes[0].http, forwarded: true }),
  ];
  browser = await open();
});
after(async () => {
  await browser?.close();
  for (const server of [local, far]) server?.close();
  await cluster?.stop();
});

/** Runs with a page at this link, in a browser of its own; fails on whatever no page may do. */
async function at(
  hash: string,
  run: (page: Page) => Promise<void>,
  { server = far, who }: { server?: any; who?: typeof anna } = {},
) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    reducedMotion: "reduce",
    ...(who ? { storageState: who } : {}),
  });
  context.setDefaultTimeout(30_000);
  const page = await context.newPage();
  const wrong: string[] = await watch(page, server.url);
  try {
    await page.goto(server.url + hash);
    await run(page);
    assert.deepEqual(wrong, []);
  } finally {
    server.state.inject = null;
    await context.close();
  }
}
const asAnna = (hash: string, run: (page: Page) => Promise<void>) =>
  at(
    hash,
    async (page) => {
      await page.waitForSelector("header .who >> text=administrator");
      await run(page);
    },
    { who: anna },
  );

const deed = (page: Page) => page.locator("dialog .buttons button").last();
const field = (page: Page, label: string) => page.locator(`dialog label:has-text("${label}") input`);
const says = (page: Page, pattern: RegExp) =>
  page.locator("main [role=status]", { hasText: pattern }).first().waitFor();
const would = (page: Page, pattern: RegExp) => page.locator("dialog .what-it-does", { hasText: pattern }).waitFor();
const closed = (page: Page) => page.waitForSelector("dialog[open]", { state: "detached" });
const command = (page: Page) => page.locator("dialog .command-line code").innerText();
const row = (page: Page, name: string) => page.locator("main tbody tr", { has: page.locator("th", { hasText: name }) });
const rowButton = (page: Page, name: string, says: string) => row(page, name).locator("button", { hasText: says });
async function fill(page: Page, fields: Record<string, string>) {
  for (const [label, text] of Object.entries(fields)) await field(page, label).fill(text);
}
async function signIn(page: Page, user: string, password: string) {
  await page.locator("dialog h2", { hasText: "Sign in" }).waitFor();
  await fill(page, { User: user, Password: password });
  await deed(page).click();
}
/** Chooses an action, waits for what it would do, and does it. */
async function make(page: Page, sentence: RegExp) {
  await would(page, sentence);
  await deed(page).click();
}
const connect = (username: string | undefined, password: string | undefined, clientId: string) =>
  mqtt.connectAsync(`mqtt://127.0.0.1:${cluster.nodes[0].mqtt}`, {
    protocolVersion: 5,
    clientId,
    reconnectPeriod: 0,
    connectTimeout: 10_000,
    ...(username === undefined ? {} : { username, password }),
  });
const statusWith = async (key: string) =>
  (await fetch(`http://127.0.0.1:${cluster.nodes[0].http}/api/v1/me`, { headers: { Authorization: `Bearer ${key}` } }))
    .status;

/** The code in the last such line of the node's log. */
async function code(): Promise<string> {
  const deadline = Date.now() + 30_000;
  while (Date.now() < deadline) {
    const found = [
      ...readFileSync(join(cluster.folder, "mq-1", "log"), "utf8").matchAll(/first administrator.*code="([^"]+)"/g),
    ].at(-1)?.[1];
    if (found) return found;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error("the log has no code after 30 s");
}

test("who may only read is told how to change something, and a wrong code loses nothing", () =>
  at(
    "#/people",
    async (page) => {
      await page.locator(".answer", { hasText: "Only administrators see who may look at this cluster" }).waitFor();
      await page.locator("main .notice", { hasText: "Nobody can change anything on this broker yet" }).waitFor();
      await nothingIsFound(page, "people, without a role");
      await page.click("main button >> text=Become the first administrator…");
      await page.locator("dialog code", { hasText: "journalctl -u heraldmq | grep 'first administrator'" }).waitFor();
      assert.match(
        await page.locator("dialog").innerText(),
        new RegExp(`The node that serves this page, ${new URL(local.url).host},`),
      );
      await nothingIsFound(page, "the first administrator");
      await fill(page, {
        Code: "AAAAA-AAAAA-AAAAA-AAAAA",
        "User name": "anna",
        "New password": secrets.anna,
        "The same again": "another",
      });
      await page.locator("dialog [role=status]", { hasText: "The two passwords differ." }).waitFor();
      assert.equal(await deed(page).isDisabled(), true);
      await field(page, "The same again").fill(secrets.anna);
      assert.match(await command(page), /^heraldmq person first --url=\S+ -- anna$/);
      await deed(page).click();
      await page
        .locator("dialog .notice.bad", {
          hasText: "The code was refused. this is not the code that the log of this node shows",
        })
        .waitFor();
      assert.deepEqual(
        await Promise.all(
          ["Code", "User name", "New password", "The same again"].map((label) => field(page, label).inputValue()),
        ),
        ["AAAAA-AAAAA-AAAAA-AAAAA", "anna", secrets.anna, secrets.anna],
      );
      await nothingIsFound(page, "a refused code");
      await page.click("dialog button >> text=Cancel");
      await closed(page);
    },
    { server: local },
  ));

test("a newcomer with a browser and the log makes a broker that lets the right clients publish", async () => {
  const [name, secret] = ["ann", "correct horse battery"];
  const anonymous = await connect(undefined, undefined, "before");
  await anonymous.endAsync();
  await at("", async (page) => {
    await page.locator("dialog h2", { hasText: "Become the first administrator" }).waitFor();
    await fill(page, {
      Code: (await code()).toLowerCase(),
      "User name": "anna",
      "New password": secrets.anna,
      "The same again": secrets.anna,
    });
    await deed(page).click();
    await closed(page);
    await page.waitForSelector("header .who >> text=anna administrator");
    assert.equal(await page.locator("main .notice", { hasText: "Nobody can change anything" }).count(), 0);
    await page.click("nav >> text=Users and rules");
    await page.click(".tabs >> text=Groups");
    await page.click("button >> text=Add a group…");
    await field(page, "Name").fill("meters");
    await page.locator("dialog textarea").first().fill("allow publish meters/%u/#\ndeny publish #");
    await make(page, /^Adds the group; /);
    await closed(page);
    await page.click(".tabs >> text=Users");
    await page.click("button >> text=Add a user…");
    await fill(page, { "User name": name, Password: secret });
    await page.check("dialog .choices label:has-text('meters') input");
    await make(page, /^Adds the user; /);
    await closed(page);
    await page.click("button >> text=Add a user…");
    await fill(page, { "User name": "guest", Password: secret });
    await page.locator("dialog textarea").fill("deny publish #");
    await make(page, /^Adds the user; /);
    await closed(page);
    anna = await page.context().storageState();
  });
  const client = await connect(name, secret, "meter-1");
  await client.publishAsync("meters/ann/power", "1.2", { qos: 1 });
  await assert.rejects(client.publishAsync("meters/ben/power", "1.2", { qos: 1 }), /Not authorized/i);
  await client.endAsync();
  const guest = await connect("guest", secret, "guest");
  await assert.rejects(guest.publishAsync("meters/guest/power", "1.2", { qos: 1 }), /Not authorized/i);
  await guest.endAsync();
  await assert.rejects(connect(name, "a guess", "meter-2"), /(Not authorized|Bad User Name or Password)/i);
  await assert.rejects(connect(undefined, undefined, "after"), /(Not authorized|Bad User Name or Password)/i);
  // The code is good for nothing, and the dialog does not ask for it.
  await at("", async (page) => {
    await page.locator("dialog h2", { hasText: "Sign in" }).waitFor();
    assert.doesNotMatch(await page.locator("dialog").innerText(), /first administrator/);
  });
});

test("the last administrator stays, and the dialog says why", () =>
  asAnna("#/people", async (page) => {
    await page.locator(".answer", { hasText: "1 person, 0 keys; 1 can change everything." }).waitFor();
    const refused = async () => {
      await page.locator("dialog .notice.warn", { hasText: "This is you." }).waitFor();
      await page.locator("dialog .notice.bad", { hasText: "nobody in the store could change anything then" }).waitFor();
      await would(page, /^The broker would refuse this change: add another administrator first\.$/);
      assert.equal(await deed(page).isDisabled(), true);
      await page.click("dialog button >> text=Cancel");
      await closed(page);
    };
    for (const button of ["Disable…", "Remove…"]) {
      await rowButton(page, "anna", button).click();
      await refused();
    }
    await rowButton(page, "anna", "Change…").click();
    await page.selectOption("dialog select", "viewer");
    await refused();
    assert.match(await row(page, "anna").innerText(), /administrator/);
  }));

test("a person whose password somebody else knows chooses another before anything else", async () => {
  await asAnna("#/people", async (page) => {
    const sent: string[] = [];
    page.on("request", (request) => {
      if (request.postData()?.includes(secrets.carl)) sent.push(request.url());
    });
    await page.click("button >> text=Add a person…");
    await fill(page, { Name: "carl", "Password, at least": secrets.carl, Note: "shift lead" });
    await page.selectOption("dialog label:has-text('Role') select", "operator");
    await page.check("dialog label:has-text('Reads the audit') input");
    await would(page, /^Adds the person\.$/);
    assert.match(
      await page.locator("dialog .command-line").innerText(),
      /it asks for the password[^]*heraldmq person add --url=\S+ --role=operator --audits=true --note='shift lead' -- carl/,
    );
    assert.doesNotMatch(await page.locator("dialog").innerText(), new RegExp(secrets.carl));
    await deed(page).click();
    await closed(page);
    await says(page, /carl was added as operator\./);
    assert.deepEqual(sent, [`${far.url}api/v1/people`], "a password is sent when it is set, and in no dry run");
    await page.locator(".answer", { hasText: "2 people, 0 keys; 1 can change everything." }).waitFor();
    assert.match(
      await row(page, "carl").innerText(),
      /carl\s+operator\s+reads\s+●?\s*enabled\s+to be changed\s+store\s+shift lead/,
    );
  });
  await at("#/bans", async (page) => {
    await signIn(page, "carl", secrets.carl);
    await page.locator("dialog h2", { hasText: "Choose another password" }).waitFor();
    for (let times = 0; times < 3; times++) await page.keyboard.press("Escape");
    // Browsers close it, and the page opens it again.
    await page.locator("dialog[open] h2", { hasText: "Choose another password" }).waitFor();
    await nothingIsFound(page, "another password");
    assert.equal(await page.evaluate("fetch('api/v1/bans').then((answer) => answer.status)"), 403);
    assert.equal(await page.locator("main .notice.bad").count(), 0);
    await fill(page, {
      "Old password": "a wrong password",
      "New password": secrets.ofCarl,
      "The same again": secrets.ofCarl,
    });
    await deed(page).click();
    await page.locator("dialog .notice.bad", { hasText: "The old password is wrong." }).waitFor();
    assert.equal(await field(page, "New password").inputValue(), secrets.ofCarl);
    await fill(page, { "Old password": secrets.carl, "New password": secrets.carl, "The same again": secrets.carl });
    await page.locator("dialog [role=status]", { hasText: "choose another" }).waitFor();
    assert.equal(await deed(page).isDisabled(), true);
    await fill(page, { "New password": secrets.ofCarl, "The same again": secrets.ofCarl });
    await deed(page).click();
    await closed(page);
    // The page goes on, with the session that has begun.
    await page.locator(".answer", { hasText: "Nobody is banned." }).waitFor();
    await page.click("main button >> text=Ban…");
    await field(page, "Who").fill("meter-9");
    await deed(page).click();
    await page.locator("main tbody", { hasText: "meter-9" }).waitFor();
    // Any time later, from what stands at the top right.
    await page.click("header button.who-name");
    await page.locator("dialog", { hasText: "You have the role operator and may read the audit." }).waitFor();
    await nothingIsFound(page, "the account");
    await fill(page, {
      "Old password": secrets.ofCarl,
      "New password": secrets.again,
      "The same again": secrets.again,
    });
    await deed(page).click();
    await page.locator("dialog [role=status]", { hasText: "Your password was changed." }).waitFor();
    await page.click("dialog button >> text=Close");
    await page.click("nav >> text=People & keys");
    await page
      .locator(".answer", {
        hasText: "Only administrators see who may look at this cluster and change it; you are an operator.",
      })
      .waitFor();
    await nothingIsFound(page, "people, as an operator");
    await page.click("header button >> text=Sign out");
    await signIn(page, "carl", secrets.again);
    await closed(page);
    // Somebody says while carl is signed in that the password has to be changed.
    await asAnna("#/people", async (other) => {
      const csrf = await other.evaluate(
        "fetch('api/v1/me').then((answer) => answer.json()).then((me) => me.csrf_token)",
      );
      const put = await other.request.put(`${far.url}api/v1/people/carl`, {
        data: { role: "operator", must_change: true },
        headers: { "X-CSRF-Token": csrf as string },
      });
      assert.equal(put.status(), 200);
    });
    await page.click("nav >> text=Bans");
    await page.locator("dialog h2", { hasText: "Choose another password" }).waitFor();
    await page.click("dialog button >> text=Sign out");
    await page.locator("dialog h2", { hasText: "Sign in" }).waitFor();
  });
});

test("a generated password is shown once, and who is disabled is signed out", () =>
  asAnna("#/people", async (page) => {
    await page.click("button >> text=Add a person…");
    await field(page, "Name").fill("dora");
    await page.selectOption("dialog label:has-text('Signs in with') select", "generate");
    await page.uncheck("dialog label:has-text('Has to choose another') input");
    await would(page, /^Adds the person\.$/);
    assert.match(await command(page), /^heraldmq person add --url=\S+ --generate --keep --role=viewer -- dora$/);
    await deed(page).click();
    const secret = await page.locator("dialog [data-secret]").innerText();
    await page.locator("dialog", { hasText: "It is not shown again" }).waitFor();
    await nothingIsFound(page, "what is shown once");
    await page.click("dialog button >> text=Close");
    await closed(page);
    assert.ok(secret.length >= 12 && !(await page.content()).includes(secret));
    await at("", async (dora) => {
      await signIn(dora, "dora", secret);
      await dora.waitForSelector("header .who >> text=dora viewer");
      await rowButton(page, "dora", "Disable…").click();
      assert.match(await command(page), /^heraldmq person disable --url=\S+ -- dora$/);
      await make(page, /^Disables the person, and ends all sessions of the person\.$/);
      await closed(page);
      await row(page, "dora").locator("td", { hasText: "disabled" }).waitFor();
      await dora.locator("dialog h2", { hasText: "Sign in" }).waitFor();
      await signIn(dora, "dora", secret);
      await dora.locator("dialog .notice.bad").waitFor();
      await rowButton(page, "dora", "Enable…").click();
      await make(page, /^Enables the person\.$/);
      await closed(page);
      await row(page, "dora").locator("td", { hasText: "enabled" }).waitFor();
      await rowButton(page, "dora", "Password…").click();
      await page.locator("dialog input[type=password]").fill("too short");
      assert.equal(await deed(page).isDisabled(), true);
      await page.locator("dialog input[type=password]").fill("long enough now");
      await page.uncheck("dialog label:has-text('Has to choose another') input");
      assert.match(await command(page), /^heraldmq person passwd --url=\S+ --keep -- dora$/);
      await make(page, /^Replaces the password, and ends all sessions of the person\.$/);
      await closed(page);
      await says(page, /dora has another password\./);
      await signIn(dora, "dora", "long enough now");
      await dora.waitForSelector("header .who >> text=dora viewer");
    });
    // What was typed stays when somebody else changes the person.
    await rowButton(page, "dora", "Change…").click();
    await field(page, "Note").fill("until March");
    await would(page, /^Changes the person\.$/);
    const csrf = await page.evaluate("fetch('api/v1/me').then((answer) => answer.json()).then((me) => me.csrf_token)");
    const put = await page.request.put(`${far.url}api/v1/people/dora`, {
      data: { role: "operator" },
      headers: { "X-CSRF-Token": csrf as string },
    });
    assert.equal(put.status(), 200);
    await field(page, "Note").fill("until April");
    await page.locator("dialog .notice.warn", { hasText: "Somebody else has changed this" }).waitFor();
    await page.click("dialog button >> text=Read it again");
    await would(page, /^Changes the person\.$/);
    assert.equal(await field(page, "Note").inputValue(), "until April");
    assert.match(await command(page), /^heraldmq person set --url=\S+ --note='until April' -- dora$/);
    await deed(page).click();
    await closed(page);
    await row(page, "dora").locator("td", { hasText: "until April" }).waitFor();
    assert.match(await row(page, "dora").innerText(), /operator/);
    await rowButton(page, "dora", "Remove…").click();
    await make(page, /^Removes the person\.$/);
    await closed(page);
    await row(page, "dora").waitFor({ state: "detached" });
  }));

test("a key is shown once, counts on for an hour when it is rotated, or ends at once", () =>
  asAnna("#/people", async (page) => {
    const shown = async () => {
      const key = await page.locator("dialog [data-secret]").innerText();
      assert.match(key, /^hmq_[0-9a-f]{8}_/);
      await page.click("dialog button >> text=Close");
      await closed(page);
      assert.ok(!(await page.content()).includes(key));
      return key;
    };
    const rotate = async (overlap: string, sentence: RegExp) => {
      await rowButton(page, "ci", "Rotate…").click();
      await page.selectOption("dialog select", overlap);
      await make(page, sentence);
      return shown();
    };
    await page.click("button >> text=Add a key…");
    await field(page, "Name").fill("ci");
    await page.selectOption("dialog label:has-text('Role') select", "administrator");
    await field(page, "Ends after days").fill("many");
    await page.locator("dialog [role=status]", { hasText: "Type a number of days" }).waitFor();
    await field(page, "Ends after days").fill("90");
    assert.match(await command(page), /^heraldmq key add --url=\S+ --name=ci --role=administrator --for=90d$/);
    await make(page, /^Adds the key\.$/);
    const first = await shown();
    const id = first.split("_")[1]!;
    await page.locator(".answer", { hasText: "2 people, 1 key; 2 can change everything." }).waitFor();
    assert.equal(await statusWith(first), 200);
    const second = await rotate("3600", /^Adds a secret; that of now ends in an hour\.$/);
    assert.deepEqual([await statusWith(first), await statusWith(second)], [200, 200]);
    await row(page, "ci").locator("td:nth-of-type(6) time").waitFor();
    await rowButton(page, "ci", "Rotate…").click();
    await page
      .locator("dialog .notice.warn", { hasText: "A secret from before the last rotation still counts until" })
      .waitFor();
    assert.equal(await command(page), `heraldmq key rotate --url=${far.url.replace(/\/$/, "")} --overlap=1h -- ${id}`);
    await page.click("dialog button >> text=Cancel");
    const third = await rotate("0", /^Replaces the secret at once\.$/);
    assert.deepEqual([await statusWith(first), await statusWith(second), await statusWith(third)], [401, 401, 200]);
    // The commands of the dialogs make the same changes, with this key.
    const file = join(cluster.folder, "key");
    writeFileSync(file, third, { mode: 0o600 });
    const run = (text: string) =>
      promisify(execFile)("bash", ["-c", `heraldmq() { "$HERALDMQ_BIN" "$@"; }; ${text}`], {
        env: { ...process.env, HERALDMQ_KEY_FILE: file },
      });
    await page.click("button >> text=Add a key…");
    await field(page, "Name").fill("it's $(id)");
    await page.check("dialog label:has-text('Reads the audit') input");
    await would(page, /^Adds the key\.$/);
    assert.match((await run(await command(page))).stdout, /^hmq_/);
    await page.click("dialog button >> text=Cancel");
    await rowButton(page, "it's $(id)", "Rotate…").click();
    await page.selectOption("dialog select", "86400");
    assert.match((await run(await command(page))).stdout, /^hmq_/);
    await page.click("dialog button >> text=Cancel");
    await row(page, "it's $(id)").locator("td:nth-of-type(6) time").waitFor();
    await rowButton(page, "it's $(id)", "Remove…").click();
    await would(page, /^Removes the key\.$/);
    await run(await command(page));
    await page.click("dialog button >> text=Cancel");
    await row(page, "it's $(id)").waitFor({ state: "detached" });
    await rowButton(page, "carl", "Change…").click();
    await page.uncheck("dialog label:has-text('Reads the audit') input");
    await page.selectOption("dialog label:has-text('Role') select", "viewer");
    await field(page, "Note").fill("");
    await would(page, /^Makes the operator a viewer, at once\.$/);
    await run(await command(page));
    await page.click("dialog button >> text=Cancel");
    await row(page, "carl").locator("td", { hasText: "viewer" }).waitFor();
    await rowButton(page, "ci", "Remove…").click();
    await make(page, /^Removes the key\.$/);
    await closed(page);
    await says(page, /The key ci was removed\./);
    assert.equal(await statusWith(third), 401);
  }));

test("the audit says who has made a change, where it is looked for, and its export is whole", async () => {
  await asAnna("#/user?id=ann", async (page) => {
    await page.click("main .head button >> text=Change…");
    await field(page, "Note").fill("on the roof");
    await make(page, /^Changes the user; /);
    await closed(page);
    await page.click("main .facts a >> text=what was changed");
    await page.locator("h1", { hasText: "Audit" }).waitFor();
    await page
      .locator(".answer", {
        hasText: /^\d+ entries since 20\d\d-\d\d-\d\d; the last one is by \S+, \d+ (s|min).* ago\.$/,
      })
      .waitFor();
    const rows = page.locator("main tbody tr");
    await rows.filter({ hasText: "on the roof" }).waitFor();
    assert.match(
      await rows.first().innerText(),
      /^\d\d:\d\d:\d\d\s+anna person\s+127\.0\.0\.1\s+user\.change\s+ann\s+note: nothing → on the roof\s+mq-1$/,
    );
    // The record that was added shows what it had, without what was empty.
    assert.match(
      await rows.last().innerText(),
      /user\.add\s+ann\s+enabled: true · groups: meters · superuser: false · verifiers: password\s+mq-1$/,
    );
    assert.equal(await rows.count(), 2);
    assert.equal(await rows.first().locator("td a", { hasText: "ann" }).last().getAttribute("href"), "#/user?id=ann");
    await page.click("main button >> text=As command");
    assert.match(
      await page.locator(".command-box").innerText(),
      /audit\?action=user.&target=ann[^]*heraldmq audit list --url=\S+ --action=user\. --target=ann/,
    );
    await nothingIsFound(page, "the audit of a user");
    // Rules of several lines are folded.
    await page.fill("main label:has-text('Action begins with') input", "group.");
    await page.fill("main label:has-text('Target') input", "meters");
    await page.locator("main .fold summary", { hasText: "rules: 2 lines" }).click();
    await page.locator("main .fold code >> text=deny publish #").waitFor();
    await nothingIsFound(page, "an entry of the audit that is open");
    assert.match(page.url(), /#\/audit\?action=group\.&target=meters$/);
    await page.fill("main label:has-text('Who') input", "nobody");
    await page.locator("main .empty", { hasText: "No entry matches." }).waitFor();
    await page.fill("main label:has-text('Who') input", "");
    await page.selectOption("main label:has-text('Since') select", "1h");
    await page.locator("main tbody tr").waitFor();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.click("main a >> text=Export all entries"),
    ]);
    assert.equal(download.suggestedFilename(), "audit.ndjson");
    await download.saveAs(join(cluster.folder, "audit.ndjson"));
    const head = await page.locator("[data-head]").innerText();
    const verify = await page.locator("code", { hasText: "heraldmq audit verify --head" }).innerText();
    assert.ok(verify.includes(head), verify);
    const { stdout } = await promisify(execFile)("bash", ["-c", `heraldmq() { "$HERALDMQ_BIN" "$@"; }; ${verify}`], {
      cwd: cluster.folder,
    });
    assert.match(stdout, /^whole: entries 0 to \d+, head [0-9a-f]{64}$/m);
  });
  await asAnna("#/people", async (page) => {
    await row(page, "carl").locator("a", { hasText: "changes" }).click();
    await page.locator("main tbody tr", { hasText: "role: operator → viewer" }).waitFor();
    assert.match(
      await page.locator("main tbody tr").last().innerText(),
      /anna person\s+127\.0\.0\.1\s+person\.add\s+carl\s+role: operator/,
    );
    assert.equal((await page.locator("main tbody tr", { hasText: "password: replaced (set)" }).count()) > 0, true);
    far.state.inject = (path: string) =>
      path.startsWith("audit") && { status: 503, body: problemBody(503, "not-ready", "The node is not ready") };
    await page.reload();
    await page.locator("main .notice.bad", { hasText: "The node is not ready." }).waitFor();
    assert.equal(await page.locator("main .notice.bad").count(), 1);
    assert.equal(await page.locator("main .empty").count(), 0);
    await nothingIsFound(page, "the audit of a node that is not ready");
  });
});

test("who may not read the audit is told who does, and who may audit reads it", async () => {
  await asAnna("#/people", async (page) => {
    const csrf = await page.evaluate("fetch('api/v1/me').then((answer) => answer.json()).then((me) => me.csrf_token)");
    const put = (audits: boolean) =>
      page.request.put(`${far.url}api/v1/people/carl`, {
        data: { role: "viewer", audits, must_change: false },
        headers: { "X-CSRF-Token": csrf as string },
      });
    assert.equal((await put(false)).status(), 200);
    await at("#/audit", async (carl) => {
      await signIn(carl, "carl", secrets.again);
      await carl
        .locator(".answer", {
          hasText:
            "Administrators see who has changed what, and so do people and keys with the right audits; you are a viewer without it.",
        })
        .waitFor();
      assert.match(
        await carl.locator("main .empty").innerText(),
        /heraldmq person set --url=\S+ --audits=true -- carl$/,
      );
      assert.equal(await carl.evaluate("fetch('api/v1/audit').then((answer) => answer.status)"), 403);
      assert.equal(far.state.asked.filter((one: any) => one.path === "audit/head" && one.open).length, 0);
      await nothingIsFound(carl, "the audit, without the right");
      assert.equal((await put(true)).status(), 200);
      await carl.reload();
      await carl.locator("main tbody tr", { hasText: "person.change" }).first().waitFor();
      await carl.goto(far.url + "#/people");
      await carl.locator(".answer", { hasText: "Only administrators see who" }).waitFor();
    });
  });
});

test("where nobody has a password, the dialog says how to come in", () =>
  at("", async (page) => {
    far.state.inject = (path: string) =>
      path === "login/methods" && { status: 200, body: JSON.stringify({ password: false, first: false }) };
    await page.reload();
    await page.locator("dialog .panel", { hasText: "Nobody has a password yet" }).waitFor();
    assert.match(
      await page.locator("dialog .panel").innerText(),
      /heraldmq person add --url=\S+ --role=administrator -- anna[^]*http\.userFile=people/,
    );
    await nothingIsFound(page, "nobody has a password");
  }));

test("axe finds nothing on the page of people and keys, and in its dialogs", () =>
  asAnna("#/people", async (page) => {
    await page.click("button >> text=Add a key…");
    await field(page, "Name").fill("grafana");
    await make(page, /^Adds the key\.$/);
    await page.click("dialog button >> text=Close");
    await row(page, "grafana").waitFor();
    await nothingIsFound(page, "people");
    for (const [name, button] of [
      [null, "Add a person…"],
      [null, "Add a key…"],
      ["carl", "Change…"],
      ["carl", "Password…"],
      ["carl", "Disable…"],
      ["carl", "Remove…"],
      ["grafana", "Rotate…"],
      ["grafana", "Remove…"],
    ] as const) {
      await (name ? rowButton(page, name, button) : page.locator("main button", { hasText: button })).click();
      await page.locator("dialog[open] .what-it-does", { hasNotText: "Asking" }).waitFor();
      await nothingIsFound(page, `people, ${button}`);
      await page.keyboard.press("Escape");
      await closed(page);
    }
  }));
