// Keys for those who like them. None works in a field or with Ctrl or Alt, and none changes anything at once.
import { keysOn } from "../navigation/preferences";
import { paused } from "../api/poll";
import { pages } from "../navigation/pages";
import { go } from "../navigation/route";
import { signal } from "@preact/signals";

export const helpOpen = signal(false);
export const again = signal(0);
let afterG = 0;

const inField = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName));

export function listen(): void {
  addEventListener("keydown", (event) => {
    if (!keysOn.value || event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]"))
      return;
    if (inField(event.target)) {
      if (event.key === "Escape" && !event.defaultPrevented) (event.target as HTMLElement).blur();
      return;
    }
    const page = Date.now() - afterG < 1500 ? pages.find((entry) => entry.key === event.key) : undefined;
    afterG = event.key === "g" ? Date.now() : 0;
    if (page) go(page.page);
    else if (!press(event.key)) return;
    event.preventDefault();
  });
}

function press(key: string): boolean {
  switch (key) {
    case "/":
      document.querySelector<HTMLElement>("#search")?.focus();
      return true;
    case "?":
      helpOpen.value = true;
      return true;
    case "p":
      paused.value = !paused.value;
      return true;
    case "r":
      again.value++;
      return true;
    case "j":
      return step(1);
    case "k":
      return step(-1);
    case ".":
      return act();
    case "y":
      return copy();
    case "[":
    case "]":
      document.querySelector<HTMLElement>(`main [data-key="${key}"]`)?.click();
      return true;
    case "Escape":
      history.back();
      return true;
    default:
      return /^[1-9]$/.test(key) ? part(Number(key)) : key === "g";
  }
}

function step(by: number): boolean {
  const links = [...document.querySelectorAll<HTMLElement>("main tbody th a")];
  const at = links.indexOf(document.activeElement as HTMLElement);
  links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + by))]?.focus();
  return links.length > 0;
}

/** To the actions of the row that has the focus, or of the one that the link to this page has chosen. */
function act(): boolean {
  const row = document.activeElement?.closest("main tbody tr") ?? document.querySelector("main tr.chosen");
  const action = row?.querySelector<HTMLElement>("td button:enabled");
  action?.focus();
  return action != null;
}

function part(number: number): boolean {
  const link = document.querySelectorAll<HTMLElement>("main .tabs a")[number - 1];
  link?.click();
  return link !== undefined;
}

function copy(): boolean {
  const copied =
    document.activeElement?.closest<HTMLElement>("[data-copy]") ??
    document.querySelector<HTMLElement>("main [data-copy]");
  if (copied) void navigator.clipboard.writeText(copied.dataset.copy ?? "");
  return copied !== null;
}
