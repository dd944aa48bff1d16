// One box for everything: a client by its identifier or how it begins, a topic, a node, a page.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get, post } from "../api/api";
import { middle, visible } from "../words/format";
import { pages } from "../navigation/pages";
import { link } from "../navigation/route";

interface Found {
  kind: string;
  text: string;
  href: string;
}

export function Search() {
  const [text, setText] = useState("");
  const [{ asked, found }, setAnswer] = useState<{ asked: string; found: Found[] }>({ asked: "", found: [] });
  const [chosen, setChosen] = useState(0);
  const [open, setOpen] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  /** For what Enter was pressed before its answer came: the first that is found is opened then. */
  const [wanted, setWanted] = useState<string | null>(null);

  useEffect(() => {
    setChosen(0);
    if (text === "") return setAnswer({ asked: "", found: [] });
    const abort = new AbortController();
    const timer = setTimeout(
      () =>
        find(text, abort.signal).then(
          (all) => {
            if (!abort.signal.aborted) setAnswer({ asked: text, found: all });
          },
          () => {},
        ),
      200,
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);
  useEffect(() => {
    if (wanted !== null && wanted === asked) choose(found[0]);
  }, [wanted, asked]);

  function leave() {
    setOpen(false);
    setText("");
    setWanted(null);
    input.current?.blur();
  }
  function choose(one: Found | undefined) {
    if (one) location.hash = one.href;
    leave();
  }
  function press(event: KeyboardEvent) {
    if (event.key === "Escape") leave();
    else if (event.key === "ArrowDown") setChosen(Math.min(found.length - 1, chosen + 1));
    else if (event.key === "ArrowUp") setChosen(Math.max(0, chosen - 1));
    else if (event.key === "Enter") {
      const typed = input.current!.value;
      if (typed !== "" && typed === asked) choose(found[chosen]);
      else if (typed !== "") setWanted(typed);
    } else return;
    event.preventDefault();
  }
  const shown = open && text !== "";
  return (
    <div class="search" role="search">
      <input
        id="search"
        ref={input}
        type="text"
        value={text}
        placeholder="Client, topic, node, page"
        aria-label="Search"
        autocomplete="off"
        spellcheck={false}
        role="combobox"
        aria-expanded={shown}
        aria-controls="found"
        aria-autocomplete="list"
        aria-activedescendant={shown && found.length > 0 ? `found-${chosen}` : undefined}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onBlur={() => {
          setOpen(false);
          setWanted(null);
        }}
        onKeyDown={press}
      />
      <kbd aria-hidden="true">/</kbd>
      <div id="found" role="listbox" aria-label="Found" hidden={!shown} onMouseDown={(event) => event.preventDefault()}>
        {found.map((one, n) => (
          <a
            key={one.href}
            id={`found-${n}`}
            role="option"
            aria-selected={n === chosen}
            tabIndex={-1}
            href={one.href}
            onClick={leave}
          >
            <span class="soft">{one.kind}</span> <span class="foreign">{middle(visible(one.text), 44)}</span>
          </a>
        ))}
      </div>
    </div>
  );
}

async function find(text: string, abort: AbortSignal): Promise<Found[]> {
  const lower = text.toLowerCase();
  const [exact, begin, nodes] = await Promise.all([
    post("/lookup", { client_id: text }, {}, abort).then(
      () => [text],
      (error) => {
        if (error instanceof ApiError) return [];
        throw error;
      },
    ),
    get("/clients", { prefix: text, limit: 6 }, {}, abort).then(
      (page) => page.items.map((row) => row.client_id),
      () => [],
    ),
    get("/nodes", {}, {}, abort).then(
      (page) => page.items.filter((row) => row.node_name.toLowerCase().includes(lower) || row.node.startsWith(lower)),
      () => [],
    ),
  ]);
  const clients = [...new Set([...exact, ...begin])].slice(0, 6);
  const topic = { kind: "topic", text, href: link("topics", { topic: text }) };
  const found: Found[] = [
    ...pages
      .filter((entry) => !entry.within && entry.title.toLowerCase().startsWith(lower))
      .map((entry) => ({ kind: "page", text: entry.title, href: link(entry.page) })),
    ...clients.map((id) => ({ kind: "client", text: id, href: link("client", { id }) })),
    ...nodes.map((row) => ({ kind: "node", text: row.node_name, href: link("nodes", { node: row.node }) })),
  ];
  return text.includes("/") && exact.length === 0 ? [topic, ...found] : [...found, topic];
}
