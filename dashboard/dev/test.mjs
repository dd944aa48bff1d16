// Bundles test/*.test.ts into a temporary folder and runs them. Without a broker in HERALDMQ_BIN, those that need a browser
// and nodes are left out; arguments are parts of files' names, and NAME is a
// pattern of tests' names.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const wanted = process.argv.slice(2);
const live = Boolean(process.env.HERALDMQ_BIN);
const names = readdirSync(join(root, "test"))
  .filter((name) => name.endsWith(".test.ts"))
  .filter(
    (name) =>
      (live || !name.startsWith("live-")) && (wanted.length === 0 || wanted.some((word) => name.includes(word))),
  );
if (!live) console.log("HERALDMQ_BIN is not set: without a broker, only what needs no browser is tested");
// Beside test/, so that packages and ../dev are found from it.
const folder = mkdtempSync(join(root, ".test-"));
try {
  await build({
    absWorkingDir: root,
    entryPoints: names.map((name) => `test/${name}`),
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    format: "esm",
    platform: "node",
    target: "node20",
    packages: "external",
    external: ["../dev/*"],
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "error",
  });
  const ran = spawnSync(
    process.execPath,
    [
      "--test",
      "--test-concurrency=1",
      ...(process.env.NAME ? ["--test-name-pattern", process.env.NAME] : []),
      ...names.map((name) => join(folder, name.replace(/\.ts$/, ".mjs"))),
    ],
    { stdio: "inherit", cwd: root },
  );
  process.exitCode = ran.status ?? 1;
} finally {
  rmSync(folder, { recursive: true });
}
