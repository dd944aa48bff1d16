// Whether two builds are the same, the types those of openapi.json, and sources are formatted and without what the linter names
// (`npm run format` mends what can be mended; biome.json says which rules are off).
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
  execFileSync(join(root, "node_modules/.bin/biome"), ["check", "--error-on-warnings", root], {
    stdio: "inherit",
    cwd: root,
  });
  for (const folder of built) await buildInto(folder);
  execFileSync("diff", ["-rq", ...built], { stdio: "inherit" });
} finally {
  for (const folder of built) rmSync(folder, { recursive: true });
}
