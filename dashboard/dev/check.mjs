// Whether two builds are the same, and the types those of openapi.json.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildInto } from "./build.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const built = ["a", "b"].map((name) => mkdtempSync(join(tmpdir(), `dashboard-${name}-`)));
try {
  execFileSync(process.execPath, [join(root, "dev/types.mjs"), "--check"], { stdio: "inherit" });
  execFileSync(join(root, "node_modules/.bin/tsc"), ["--noEmit", "-p", root], { stdio: "inherit" });
  for (const folder of built) await buildInto(folder);
  execFileSync("diff", ["-rq", ...built], { stdio: "inherit" });
} finally {
  for (const folder of built) rmSync(folder, { recursive: true });
}
