// What axe says of a page, at two widths and in both themes.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const axe = readFileSync(join(dirname(fileURLToPath(import.meta.url)), "../node_modules/axe-core/axe.min.js"), "utf8");

const found = (page) =>
  page.evaluate(`${axe}; axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] })
  .then(({ violations }) => violations.map(({ id, nodes }) => id + ": " + nodes.map((node) => node.html.slice(0, 160) + " " + node.any.map((one) => one.message).join()).slice(0, 3).join(" | ")))`);

/** Fails if axe finds something on the page as it is, or if it is wider than its window. `what` names the page. */
export async function nothingIsFound(page, what) {
  for (const width of [1280, 390]) {
    await page.setViewportSize({ width, height: 800 });
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      assert.deepEqual(await found(page), [], `${what}, ${width} ${colorScheme}`);
    }
    const wider = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    assert.equal(wider, 0, `${what} scrolls sideways at ${width}`);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
}
