// Routes as texts: pages stand behind `#`, identifiers are parameters, as in `#/client?id=press-17`.

export interface Route {
  page: string;
  parameters: Record<string, string>;
}

export function parse(hash: string): Route {
  const [path = "", search = ""] = split(hash.replace(/^#\/?/, ""));
  return { page: path || "overview", parameters: Object.fromEntries(new URLSearchParams(search)) };
}

function split(text: string): [string, string] {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

export function link(page: string, parameters: Record<string, string | null | undefined> = {}): string {
  const given = Object.entries(parameters).filter(
    (entry): entry is [string, string] => entry[1] != null && entry[1] !== "",
  );
  const search = new URLSearchParams(given).toString();
  return `#/${page}${search ? `?${search}` : ""}`;
}
