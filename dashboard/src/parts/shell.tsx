// What stands around every page: menu, search, who is signed in, help.
import { signal } from "@preact/signals";
import { usedAt } from "../api/api";
import { clusterNow, offsetMs, second, showTime } from "../api/clock";
import { Dialog } from "./dialog";
import { ending } from "../api/ending";
import { visible } from "../words/format";
import { again, helpOpen } from "./keys";
import { Empty, Head } from "./notices";
import { pageOf, pages } from "../navigation/pages";
import { paused } from "../api/poll";
import { keysOn, theme, zone, type Theme } from "../navigation/preferences";
import { link, route } from "../navigation/route";
import { Search } from "./search";
import { lookWhoIsSignedIn, me, signOut, signedOut } from "../api/session";
import { Account, FirstBanner, MustChange, SignIn, accountOpen, askToSignIn } from "./signin";

const menuOpen = signal(false);
const groups = ["Now", "Clients", "Messages", "Access", "Cluster"] as const;

export function Shell() {
  const entry = pageOf(route.value.page);
  const identity = `${route.value.page}\0${route.value.parameters.id ?? ""}\0${again.value}`;
  document.title = `${entry?.title ?? "Not found"} · HeraldMQ`;
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.querySelector<HTMLElement>("#main")?.focus();
        }}
      >
        Skip to the content
      </a>
      <header class="top">
        <button
          type="button"
          class="menu-button"
          aria-expanded={menuOpen.value}
          onClick={() => (menuOpen.value = !menuOpen.value)}
        >
          Menu
        </button>
        <a class="brand" href={link("overview")}>
          HeraldMQ
        </a>
        <Search />
        <div class="top-end">
          <button
            type="button"
            class="pause"
            aria-pressed={paused.value}
            onClick={() => (paused.value = !paused.value)}
          >
            {paused.value ? "Resume" : "Pause"}
          </button>
          <button type="button" class="help" onClick={() => (helpOpen.value = true)}>
            Help
          </button>
          <Who />
        </div>
      </header>
      <nav class={`menu ${menuOpen.value ? "open" : ""}`} aria-label="Pages">
        {groups.map((group) => {
          const shown = pages.filter((page) => page.group === group && !page.within);
          return (
            shown.length > 0 && (
              <div key={group}>
                <h2>{group}</h2>
                <ul>
                  {shown.map((page) => (
                    <li key={page.page}>
                      <a
                        href={link(page.page)}
                        aria-current={page.page === (entry?.within ?? entry?.page) ? "page" : undefined}
                        onClick={() => (menuOpen.value = false)}
                      >
                        {page.title}
                      </a>
                    </li>
                  ))}
                  {group === "Messages" && (
                    <li>
                      <a href="try.html">Try it</a>
                    </li>
                  )}
                </ul>
              </div>
            )
          );
        })}
      </nav>
      <main id="main" tabIndex={-1} key={identity}>
        <Ending />
        <FirstBanner />
        {entry ? <entry.show /> : <NotFound />}
      </main>
      <div class="said" role="status">
        {paused.value ? "Live figures are paused." : ""}
      </div>
      {helpOpen.value && <Help />}
      {signedOut.value ? <SignIn /> : me.value?.must_change ? <MustChange /> : accountOpen.value && <Account />}
    </>
  );
}

/** A minute before the login ends. Pages that ask for figures all the time do not let it: this is for those that wait, or are paused. */
function Ending() {
  void second.value;
  const who = me.value;
  if (!who?.user) return null;
  const end = ending(usedAt.value + offsetMs.value, who.ends_at ? Date.parse(who.ends_at) : null, clusterNow());
  return (
    end && (
      <div class="notice warn" role="status">
        <span class="notice-text">
          You will be signed out at {showTime(end.at)}:{" "}
          {end.why === "idle"
            ? "sessions end after half an hour without activity."
            : "sessions last 12 hours. Sign in again to continue."}
        </span>
        {end.why === "idle" && (
          <button type="button" onClick={() => void lookWhoIsSignedIn()}>
            Stay signed in
          </button>
        )}
      </div>
    )
  );
}

function NotFound() {
  return (
    <>
      <Head title="Not found" />
      <Empty>
        There is no page <code>{visible(route.value.page).slice(0, 80)}</code>. The menu lists all pages.
      </Empty>
    </>
  );
}

function Who() {
  const who = me.value;
  if (!who) return <span class="who" />;
  const name = who.user ?? who.key ?? "not signed in";
  const says = (
    <>
      {visible(name)} <span class="soft">{who.role}</span>
    </>
  );
  return (
    <span class="who">
      {who.user ? (
        <button
          type="button"
          class="quiet who-name"
          title={`${visible(name)}, ${who.role}: session and password`}
          aria-haspopup="dialog"
          onClick={() => (accountOpen.value = true)}
        >
          {says}
        </button>
      ) : (
        <span class="who-name" title={`${visible(name)}, ${who.role}`}>
          {says}
        </span>
      )}
      {who.user ? (
        <button type="button" class="quiet" onClick={() => void signOut()}>
          Sign out
        </button>
      ) : (
        <button type="button" class="quiet" onClick={() => askToSignIn()}>
          Sign in
        </button>
      )}
    </span>
  );
}

const close = () => (helpOpen.value = false);

function Help() {
  const rows: [string, string][] = [
    ["/", "search"],
    ["?", "this help"],
    ["r", "refresh"],
    ["p", "pause or resume"],
    ["j k", "next row, previous row"],
    ["Enter", "open the row"],
    [".", "actions of the row"],
    ["[ ]", "previous page, next page"],
    ["1 … 5", "tab of a client"],
    ["y", "copy the identifier"],
    ["Esc", "leave the field, go back"],
    ...pages.filter((page) => page.key).map((page): [string, string] => [`g ${page.key}`, page.title]),
  ];
  return (
    <Dialog title="Keyboard shortcuts and display" close={close}>
      <dl class="keys">
        {rows.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <div class="filters">
        <label class="field">
          Theme
          <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
            {["system", "light", "dark"].map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label class="field">
          Times
          <select
            value={zone.value}
            onChange={(event) => (zone.value = event.currentTarget.value === "UTC" ? "UTC" : "local")}
          >
            <option value="local">local</option>
            <option value="UTC">UTC</option>
          </select>
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={keysOn.value}
            onChange={(event) => (keysOn.value = event.currentTarget.checked)}
          />{" "}
          Keyboard shortcuts
        </label>
      </div>
      <div class="buttons">
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
