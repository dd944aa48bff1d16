// Whether dist/ is what the sources build, and the types those of openapi.json.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildInto } from "./build.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const fresh = mkdtempSync(join(tmpdir(), "dashboard-"));
try {
  execFileSync(process.execPath, [join(root, "dev/types.mjs"), "--check"], { stdio: "inherit" });
  execFileSync(join(root, "node_modules/.bin/tsc"), ["--noEmit", "-p", root], { stdio: "inherit" });
  await buildInto(fresh);
  execFileSync("diff", ["-rq", join(root, "dist"), fresh], { stdio: "inherit" });
} finally {
  rmSync(fresh, { recursive: true });
}
