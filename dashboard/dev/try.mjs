// node dev/try.mjs [SIZE] [BASE]: a cluster with load, and the dashboard on it, until it is interrupted.
import { password, startCluster } from "./cluster.mjs";
import { seed } from "./seed.mjs";
import { serve } from "./serve.mjs";

const size = Number(process.argv[2] ?? 3);
const base = Number(process.argv[3] ?? 26000);
const cluster = await startCluster({ size, base, folder: process.env.DASHBOARD_FOLDER });
const load = await seed(cluster.nodes);
const server = await serve({ node: cluster.nodes[0].http, port: base });
console.log(
  `${server.url} shows ${cluster.nodes.map((n) => n.name).join(", ")}; MQTT at ${cluster.nodes.map((n) => n.mqtt).join(", ")}`,
);
console.log(`Sign in as viewer, operator or administrator, with the password \`${password("NAME")}\``);
const end = async () => {
  load.stop();
  server.close();
  await cluster.stop();
  process.exit(0);
};
process.on("SIGINT", end);
process.on("SIGTERM", end);
