// A browser for tests and screenshots: Debian's chromium, or the one that CHROMIUM names.
import { chromium } from "playwright-core";

export const open = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
  });

/** Collects what no page may do: violations of the policy, errors, requests to others. */
export async function watch(page, origin) {
  const wrong = [];
  await page.exposeFunction("tellWrong", (text) => wrong.push(text));
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) =>
      window.tellWrong(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`),
    );
    window.addEventListener("unhandledrejection", (event) => window.tellWrong(`rejection: ${event.reason}`));
  });
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error" && !/Failed to load resource/.test(message.text()))
      wrong.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(origin)) wrong.push(`request: ${request.url()}`);
  });
  return wrong;
}
