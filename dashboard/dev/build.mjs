// Builds dist/, or the folder that is given: the same bytes from the same sources.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const hash = (data) => createHash("sha256").update(data).digest("hex");

export async function buildInto(folder) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(join(folder, "assets"), { recursive: true });
  const built = await build({
    absWorkingDir: root,
    entryPoints: { dashboard: "src/main.tsx", try: "src/try/try.tsx", page: "src/page.css" },
    outdir: join(folder, "assets"),
    write: false,
    bundle: true,
    minify: true,
    metafile: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    jsx: "automatic",
    jsxImportSource: "preact",
    entryNames: "[name]",
    define: { "process.env.NODE_ENV": '"production"' },
  });
  const names = {};
  for (const { path, contents } of built.outputFiles) {
    const [, name, extension] = /([^/\\]+)\.(js|css)$/.exec(path);
    const asset = `assets/${name}-${hash(contents).slice(0, 12)}.${extension}`;
    names[`${name}.${extension}`] = asset;
    write(folder, asset, Buffer.from(contents));
  }
  for (const [page, script] of [
    ["index.html", "dashboard.js"],
    ["try.html", "try.js"],
  ])
    write(
      folder,
      page,
      Buffer.from(
        readFileSync(join(root, "src", page), "utf8")
          .replace("{css}", names["page.css"])
          .replace("{js}", names[script]),
      ),
    );
  write(folder, "icon.svg", readFileSync(join(root, "src/icon.svg")));
  writeFileSync(join(folder, "LICENSES.txt"), licenses(Object.keys(built.metafile.inputs)));
  writeFileSync(
    join(folder, "manifest.json"),
    `${JSON.stringify({ sources: hashes(sources()), built: hashes(files(folder), folder) }, null, 1)}\n`,
  );
}

function write(folder, name, data) {
  writeFileSync(join(folder, name), data);
  writeFileSync(
    join(folder, `${name}.br`),
    brotliCompressSync(data, {
      params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: data.length },
    }),
  );
  writeFileSync(join(folder, `${name}.gz`), gzipSync(data, { level: 9 }));
}

const files = (folder) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath ?? entry.path, entry.name)).replaceAll("\\", "/"))
    .sort();

/** Everything that changes what is built. */
const sources = () =>
  [
    ...files(join(root, "src")).map((name) => `src/${name}`),
    "dev/build.mjs",
    "package.json",
    "package-lock.json",
  ].sort();

const hashes = (names, folder = root) =>
  Object.fromEntries(names.map((name) => [name, hash(readFileSync(join(folder, name)))]));

const described = (name) => JSON.parse(readFileSync(join(root, "node_modules", name, "package.json"), "utf8"));

function licenses(inputs) {
  const packages = new Set(
    inputs.map((input) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input)?.[1]).filter(Boolean),
  );
  // The file of MQTT.js for browsers has parts of what it depends on in it. A set goes on with what is added to it.
  if (packages.has("mqtt")) {
    const embedded = new Set(["mqtt"]);
    for (const name of embedded)
      for (const other of Object.keys(described(name).dependencies ?? {}))
        if (!other.startsWith("@types/")) embedded.add(other);
    for (const name of embedded) packages.add(name);
  }
  return [...packages]
    .sort()
    .map((name) => {
      const { version, license } = described(name);
      const file = readdirSync(join(root, "node_modules", name)).find((entry) => /^licen[cs]e/i.test(entry));
      const text = file ? readFileSync(join(root, "node_modules", name, file), "utf8").trim() : `Licence: ${license}`;
      return `${name} ${version}\n\n${text}\n`;
    })
    .join(`\n${"-".repeat(80)}\n\n`);
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const folder = process.argv[2] ?? join(root, "dist");
  await buildInto(folder);
  const first = [
    "index.html",
    "icon.svg",
    ...files(folder).filter((name) => /^assets\/(dashboard|page)-[^.]+\.(js|css)$/.test(name)),
  ];
  const size = (end) => first.reduce((sum, name) => sum + readFileSync(join(folder, name + end)).length, 0);
  console.log(`first paint: ${size(".br")} bytes by brotli, ${size(".gz")} by gzip`);
}
