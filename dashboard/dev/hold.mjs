// Opens a dashboard in so many browsers, says "open", and holds them until it is ended: for measurements.
import { open } from "./browser.mjs";

const [url, count] = process.argv.slice(2);
const browser = await open();
process.on("SIGTERM", () => void browser.close().finally(() => process.exit(0)));
for (let n = 0; n < Number(count); n++) {
  // A context each: nobody shares an event stream.
  const page = await (await browser.newContext()).newPage();
  await page.goto(url);
  await page.waitForSelector("main figure canvas");
}
console.log("open");
await new Promise((resolve) => setInterval(resolve, 60_000));
