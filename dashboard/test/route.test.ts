import assert from "node:assert/strict";
import { test } from "node:test";
import { link, parse } from "../src/navigation/route-text";

test("identifiers come back from a link as they were", () => {
  for (const id of [
    "press-17",
    "..",
    "a//b",
    "a?b=c&d#e",
    "%2e%2e",
    "<img onerror=x>",
    "\u202e\u0000",
    "__proto__",
    "+ +",
    "x".repeat(60_000),
  ])
    assert.equal(parse(link("client", { id })).parameters.id, id);
});

test("pages and parameters", () => {
  assert.deepEqual(parse(""), { page: "overview", parameters: {} });
  assert.deepEqual(parse("#/queues?by=age"), { page: "queues", parameters: { by: "age" } });
  assert.equal(link("clients", { prefix: "", state: undefined }), "#/clients");
});
