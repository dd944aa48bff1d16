// Writes src/api/api.types.ts from docs/reference/openapi.json: an interface for each schema, and for each method the answer
// and the body of each path. With --check it only compares.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const document = JSON.parse(readFileSync(at("../../docs/reference/openapi.json"), "utf8"));

function type(schema) {
  if (!schema) return "null";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.oneOf || schema.anyOf) return (schema.oneOf ?? schema.anyOf).map(type).join(" | ");
  if (schema.allOf) return schema.allOf.map(type).join(" & ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  return [schema.type ?? (schema.properties ? "object" : "unknown")]
    .flat()
    .map((name) => simple(name, schema))
    .join(" | ");
}

function simple(name, schema) {
  if (name === "array") return `(${type(schema.items)})[]`;
  if (name === "integer") return "number";
  if (name !== "object") return name;
  if (schema.properties) return fields(schema);
  return schema.additionalProperties ? `Record<string, ${type(schema.additionalProperties)}>` : "object";
}

// Answers have each field, `null` where it does not apply; bans alone leave fields out.
const fields = (schema) =>
  `{ ${Object.entries(schema.properties)
    .map(([name, value]) => `${name}: ${type(value)}`)
    .join("; ")} }`;

const content = (part) => Object.values(part?.content ?? {})[0]?.schema;
const lines = ["// Generated from docs/reference/openapi.json by `npm run types`; not to be edited.", ""];
for (const [name, schema] of Object.entries(document.components.schemas))
  lines.push(`export type ${name} = ${type(schema)};`);
for (const method of ["get", "post", "delete"]) {
  lines.push("", `export interface ${method[0].toUpperCase()}${method.slice(1)} {`);
  for (const [path, methods] of Object.entries(document.paths)) {
    if (!methods[method]) continue;
    const answers = Object.entries(methods[method].responses)
      .filter(([status]) => status.startsWith("2"))
      .map(([, answer]) => type(content(answer)));
    const body = type(content(methods[method].requestBody));
    lines.push(
      `  ${JSON.stringify(path.replace("/api/v1", ""))}: { answer: ${[...new Set(answers)].join(" | ")}; body: ${body} };`,
    );
  }
  lines.push("}");
}
const text = `${lines.join("\n")}\n`;
const file = at("../src/api/api.types.ts");
if (process.argv.includes("--check")) {
  if (readFileSync(file, "utf8") !== text)
    throw new Error("src/api/api.types.ts is not that of openapi.json: npm run types");
} else writeFileSync(file, text);
