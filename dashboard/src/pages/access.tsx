// Who may log in, and what may they do?
import { useState } from "preact/hooks";
import { get } from "../api/api";
import { commandOf } from "../words/command";
import { GroupList } from "../access/groups";
import { Rules } from "../access/rules";
import { UserList, filters } from "../access/users";
import { Secret } from "../access/change";
import { standing } from "../access/words";
import { count } from "../words/format";
import { Head, Told } from "../parts/notices";
import { usePolled } from "../api/poll";
import { link, route } from "../navigation/route";

const tabs = ["users", "groups", "rules"] as const;
type Tab = (typeof tabs)[number];
const titles: Record<Tab, string> = { users: "Users", groups: "Groups", rules: "Rules for everybody" };

function commandFor(tab: Tab): string {
  const { prefix, group, enabled } = route.value.parameters;
  return tab === "users"
    ? commandOf("user list", [prefix], { group, enabled })
    : tab === "groups"
      ? commandOf("user-group list")
      : commandOf("rules show");
}

export function AccessPage() {
  const parameters = route.value.parameters;
  const tab = tabs.find((name) => name === parameters.tab) ?? "users";
  const status = usePolled((abort) => get("/control", {}, {}, abort), 5000, []);
  const [told, setTold] = useState<string | null>(null);
  const [made, setMade] = useState<{ name: string; secret: string } | null>(null);
  const asked = new URLSearchParams(filters.flatMap((name) => (parameters[name] ? [[name, parameters[name]]] : [])));
  const request = tab === "users" && asked.size > 0 ? `/users?${asked}` : `/${tab}`;
  const now = status.value;
  const done = (what: string, secret?: { name: string; secret: string }) => {
    setTold(what);
    setMade(secret ?? null);
    status.again();
  };
  const figures: Record<Tab, number | undefined> = { users: now?.users, groups: now?.groups, rules: now?.lines };
  return (
    <>
      <Head title="Users and rules" polled={status} request={request} command={commandFor(tab)}>
        {now && standing(now)}
      </Head>
      <Told>{told}</Told>
      <nav class="tabs" aria-label="Parts of the page">
        {tabs.map((name) => (
          <a key={name} href={link("access", { tab: name })} aria-current={name === tab ? "true" : undefined}>
            {titles[name]} {count(figures[name])}
          </a>
        ))}
      </nav>
      {tab === "users" && <UserList isEmpty={now?.users === 0} done={done} />}
      {tab === "groups" && <GroupList isEmpty={now?.groups === 0} done={done} />}
      {tab === "rules" && <Rules done={done} />}
      {made && <Secret name={made.name} secret={made.secret} close={() => setMade(null)} />}
    </>
  );
}
