// Fills a cluster with what a dashboard shows: a plant whose machines publish, screens and services that subscribe, a
// slow client, an absent one with a full queue, retained messages, and names that are meant to break a page.
import { Client } from "./mqtt.mjs";

export const hostile = [
  "<img src=x onerror=alert(1)>",
  "right\u200f-to-left \u202etxt.exe",
  "../../etc",
  "a//b",
  "__proto__",
  "javascript:alert(1)",
];
export const longIdentifier = `long-${"0123456789".repeat(5999)}`;

export async function seed(nodes, { machines = 90, screens = 12 } = {}) {
  const port = (n) => nodes[n % nodes.length].mqtt;
  const clients = [];
  const open = async (...args) => {
    const client = await new Client(...args).open();
    clients.push(client);
    return client;
  };

  // What leaves sessions behind.
  for (const [n, id] of ["archive", "night-report", "panel-7"].entries()) {
    const away = await new Client(port(n), id, { session: 86_400, user: "services" }).open();
    away.subscribe(id === "panel-7" ? "plant/+/alarm" : "plant/+/state");
    await pause(150);
    away.close();
  }
  // Whose queue a test empties.
  const emptied = await new Client(port(0), "emptied", { session: 86_400, user: "services" }).open();
  emptied.subscribe("emptied/#");
  await pause(150);
  emptied.close();
  const filler = await open(port(0), "filler", { user: "services" });
  for (let n = 0; n < 5; n++) filler.publish(`emptied/${n}`, "waits", { qos: 1 });
  const presses = [];
  for (let n = 1; n <= machines; n++) {
    const press = await open(port(n), `press-${n}`, {
      user: "plant-a",
      will: `plant/${n}/gone`,
      session: n % 3 ? 0 : 3600,
    });
    press.subscribe(`plant/${n}/set`);
    press.publish(`plant/${n}/config`, JSON.stringify({ line: n % 4, speed: 20 + n, unit: "rpm" }), {
      retain: true,
      qos: 1,
    });
    presses.push(press);
  }
  for (let n = 1; n <= screens; n++) {
    const screen = await open(port(n + 1), `hmi-${n}`, { user: "operators", session: 3600 });
    for (const filter of ["plant/+/alarm", `plant/${n}/#`, n % 4 ? `plant/+/temperature` : "plant/#"])
      screen.subscribe(filter);
  }
  for (let n = 1; n <= 3; n++)
    (await open(port(n), `etl-${n}`, { user: "services" })).subscribe("$share/etl/plant/+/temperature");
  const slow = await open(port(0), "telemetry-hub", {
    user: "services",
    session: 86_400,
    acks: false,
    receiveMaximum: 20,
  });
  slow.subscribe("plant/+/state");
  for (const id of hostile) {
    const client = await open(port(1), id, { session: 3600 });
    client.subscribe(`${id.replace(/[+#]/g, "_")}/#`);
    client.publish(`odd/${id}`, "<b>not bold</b>", { retain: true });
  }
  (await open(port(2), longIdentifier, { session: 3600 })).subscribe("odd/#");

  let turn = 0;
  const timer = setInterval(() => {
    turn++;
    const share = 0.75 + 0.25 * Math.sin(turn / 300);
    for (const [n, press] of presses.entries()) {
      if ((n + turn) % 5 === 0 && Math.random() < share)
        press.publish(`plant/${n + 1}/temperature`, `${(60 + Math.random() * 20).toFixed(1)}`);
      if ((n * 3 + turn) % 10 === 0)
        press.publish(`plant/${n + 1}/state`, JSON.stringify({ running: true, pieces: turn, at: turn }), { qos: 1 });
    }
    // The slow client publishes as well, so that its page has a rate.
    if (turn % 5 === 0) slow.publish("hub/load", `${turn}`);
    if (turn % 50 === 0)
      presses[turn % presses.length].publish(`plant/${1 + (turn % presses.length)}/alarm`, "pressure high", {
        qos: 1,
        retain: true,
      });
  }, 100);
  return {
    clients,
    stop() {
      clearInterval(timer);
      for (const client of clients) client.close();
    },
  };
}

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));
