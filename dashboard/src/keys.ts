// Keys for those who like them. None works in a field or with Ctrl or Alt, and none changes anything at once.
import { keysOn } from "./preferences";
import { paused } from "./poll";
import { pages } from "./pages";
import { go } from "./route";
import { signal } from "@preact/signals";

export const helpOpen = signal(false);
export const again = signal(0);
let afterG = 0;

const inField = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName));

export function listen(): void {
  addEventListener("keydown", (event) => {
    if (!keysOn.value || event.ctrlKey || event.altKey || event.metaKey || inField(event.target) || document.querySelector("dialog[open]")) return;
    const page = Date.now() - afterG < 1500 ? pages.find((entry) => entry.key === event.key) : undefined;
    afterG = event.key === "g" ? Date.now() : 0;
    if (page) go(page.page);
    else if (!press(event.key)) return;
    event.preventDefault();
  });
}

function press(key: string): boolean {
  switch (key) {
    case "/": document.querySelector<HTMLElement>("#search")?.focus(); return true;
    case "?": helpOpen.value = true; return true;
    case "p": paused.value = !paused.value; return true;
    case "r": again.value++; return true;
    case "j": return step(1);
    case "k": return step(-1);
    case "y": return copy();
    case "[": case "]": document.querySelector<HTMLElement>(`main [data-key="${key}"]`)?.click(); return true;
    case "Escape": history.back(); return true;
    default: return key === "g";
  }
}

function step(by: number): boolean {
  const links = [...document.querySelectorAll<HTMLElement>("main tbody th a")];
  const at = links.indexOf(document.activeElement as HTMLElement);
  links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + by))]?.focus();
  return links.length > 0;
}

function copy(): boolean {
  const copied = document.activeElement?.closest<HTMLElement>("[data-copy]") ?? document.querySelector<HTMLElement>("main [data-copy]");
  if (copied) void navigator.clipboard.writeText(copied.dataset.copy ?? "");
  return copied !== null;
}
