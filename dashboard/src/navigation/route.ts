// Where the browser is.
import { signal } from "@preact/signals";
import { link, parse, type Route } from "./route-text";

export { link };

export const route = signal<Route>(parse(location.hash));
addEventListener("hashchange", () => (route.value = parse(location.hash)));

export const go = (page: string, parameters?: Record<string, string | null | undefined>): void => {
  location.hash = link(page, parameters);
};

/** Other parameters of the same page, without a step in the browser's history. */
export function replaceParameters(parameters: Record<string, string | null | undefined>): void {
  history.replaceState(null, "", link(route.value.page, parameters));
  route.value = parse(location.hash);
}
