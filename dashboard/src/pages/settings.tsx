// What counts?
import { useState } from "preact/hooks";
import { get } from "../api/api";
import { commandOf } from "../words/command";
import { count, plural, visible } from "../words/format";
import { Empty, Head, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { replaceParameters, route } from "../navigation/route";
import { Table } from "../parts/table";
import { State } from "../parts/text";

export function Settings() {
  const settings = usePolled((abort) => get("/settings", {}, {}, abort), 600_000, []);
  const text = route.value.parameters.name ?? "";
  const setText = (name: string) => replaceParameters({ name });
  const [onlySet, setOnlySet] = useState(true);
  const all = settings.value?.items ?? [];
  const wanted = text.toLowerCase();
  const rows = all.filter(
    (row) =>
      (!onlySet || wanted !== "" || row.origin !== "default" || row.differs.length > 0 || row.at_restart !== null) &&
      row.key.toLowerCase().includes(wanted),
  );
  const differ = all.filter((row) => row.differs.length > 0).length;
  const wait = all.filter((row) => row.at_restart !== null).length;
  return (
    <>
      <Head title="Settings" polled={settings} request="/settings" command={commandOf("settings")}>
        {settings.value &&
          `${count(all.filter((row) => row.origin !== "default").length)} of ${plural(all.length, "setting")} changed from the default; ${differ === 0 ? "all nodes agree" : plural(differ, "differs between nodes", "differ between nodes")}${wait > 0 ? `; ${plural(wait, "waits", "wait")} for a restart` : ""}.`}
      </Head>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label class="field wide">
          Name contains
          <input value={text} onInput={(event) => setText(event.currentTarget.value)} spellcheck={false} />
        </label>
        <label class="check">
          <input type="checkbox" checked={!onlySet} onChange={(event) => setOnlySet(!event.currentTarget.checked)} />{" "}
          show defaults
        </label>
      </form>
      {settings.value && rows.length === 0 ? (
        <Empty>No setting matches.</Empty>
      ) : (
        <Table
          label="Settings"
          rows={rows}
          keyOf={(row) => row.key}
          stale={isStale(settings)}
          columns={[
            { head: "Setting", width: 34, cell: (row) => <code>{row.key}</code> },
            {
              head: "Value",
              cell: (row) => <code class="wrap">{row.value === null ? "not set" : visible(row.value)}</code>,
            },
            { head: "Set by", width: 10, cell: (row) => <span title={visible(row.place ?? "")}>{row.origin}</span> },
            { head: "Takes effect", width: 15, cell: (row) => (row.live ? "on reload (SIGHUP)" : "on restart") },
            {
              head: "Other nodes, after restart",
              width: 32,
              cell: (row) => [
                ...row.differs.map((other) => (
                  <span key={other.node}>
                    {visible(other.node_name)}: {visible(other.value ?? "not set")}{" "}
                  </span>
                )),
                row.at_restart !== null && (
                  <State key="restart" is="silent" say={`${visible(row.at_restart)} after a restart`} />
                ),
              ],
            },
          ]}
        />
      )}
    </>
  );
}
