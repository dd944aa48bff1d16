// What goes on inside the process of a node?
import { useEffect, useRef, useState } from "preact/hooks";
import type { CpuProfile, MemoryProfile } from "../api/api.types";
import { ask, fill, get, problemOf, type Problem } from "../api/api";
import { second } from "../api/clock";
import { commandOf } from "../words/command";
import { Action } from "../parts/dialog";
import { bytes, count, milliseconds, plural, rate, share, unknown, visible, words } from "../words/format";
import { Empty, Failed, Head, isStale } from "../parts/notices";
import { usePolled } from "../api/poll";
import { flameGraph, functionsOf, stacksOf, svgOf, ROW, WIDTH, type Stack } from "../profile/flame";
import { compressed, pprofOf } from "../profile/pprof";
import { before, secondsBetween, structures, sumOf, usesBetween, type ThreadUse } from "../profile/usage";
import { link, route } from "../navigation/route";
import { may, me } from "../api/session";
import { askToSignIn } from "../parts/signin";
import { Table } from "../parts/table";
import { Bar } from "../parts/text";

/** Functions that are listed. */
const LISTED = 20;
/** What a node may take to count its memory, or to send a profile when its time is over, in ms. */
const PATIENCE_MS = 60_000;

export function ProfilePage() {
  const node = route.value.parameters.id;
  if (!may("administrator")) return <ForAdministrators />;
  return node ? <Profile key={node} node={node} /> : <OwnNode />;
}

function ForAdministrators() {
  const who = me.value;
  return (
    <>
      <Head title="Profile">
        {who &&
          `Only administrators look into the process of a node${who.user || who.key ? `; you are ${who.role === "operator" ? "an operator" : "a viewer"}` : ""}.`}
      </Head>
      {who && !who.user && (
        <p>
          <button type="button" onClick={() => askToSignIn()}>
            Sign in…
          </button>
        </p>
      )}
    </>
  );
}

/** Without the name of a node: the one that serves the page. */
function OwnNode() {
  const cluster = usePolled((abort) => get("/cluster", {}, {}, abort), 30_000, []);
  return cluster.value ? <Profile node={cluster.value.node} /> : <Head title="Profile" polled={cluster} />;
}

function Profile({ node }: { node: string }) {
  const polled = usePolled((abort) => get("/nodes/{node}/profile/threads", {}, { node }, abort), 5000, [node]);
  const last = polled.value;
  const first = last && before(last);
  const uses = first && usesBetween(first, last);
  const name = visible(last?.node_name || node);
  return (
    <>
      <Head
        title={last ? `Profile of ${name}` : "Profile"}
        polled={polled}
        request={fill("/nodes/{node}/profile/threads", {}, { node })}
        command={commandOf("profile threads", [], { node })}
        actions={<a href={link("nodes", { node })}>Node</a>}
      >
        {uses && threadsSay(uses, secondsBetween(first!, last!))}
      </Head>
      <h2 class="section-title">Threads</h2>
      {uses && <Threads uses={uses} stale={isStale(polled)} />}
      {last && (
        <>
          <Memory node={node} />
          <Cpu node={node} name={last.node_name || node} />
        </>
      )}
    </>
  );
}

function threadsSay(uses: ThreadUse[], seconds: number) {
  const busiest = uses[0];
  const longest = uses
    .filter((one) => one.longestTurnMs !== null)
    .sort((a, b) => b.longestTurnMs! - a.longestTurnMs!)[0];
  return (
    `In the last ${Math.round(seconds)} s, ${plural(uses.length, "thread")} used ${share(uses.reduce((sum, one) => sum + one.cpu, 0))} of a core` +
    (busiest ? `, ${visible(busiest.name)} the most` : "") +
    (longest
      ? `; the longest turn of a loop was one of ${visible(longest.name)}, ${atMost(longest.longestTurnMs)}`
      : "") +
    "."
  );
}

const atMost = (ms: number | null) =>
  ms === null ? unknown : ms === Infinity ? "over a minute" : `≤ ${milliseconds(ms)}`;

function Threads({ uses, stale }: { uses: ThreadUse[]; stale: boolean }) {
  return (
    <Table
      label="Threads"
      rows={uses}
      keyOf={(row) => row.id}
      stale={stale}
      columns={[
        { head: "Thread", by: (row) => row.name, cell: (row) => <span class="foreign">{visible(row.name)}</span> },
        { head: "CPU", width: 9, figure: true, by: (row) => row.cpu, cell: (row) => share(row.cpu) },
        { head: "No core", width: 10, figure: true, by: (row) => row.noCore, cell: (row) => share(row.noCore) },
        {
          head: "Wake-ups /s",
          width: 13,
          figure: true,
          by: (row) => row.wakeUpsPerS,
          cell: (row) => rate(row.wakeUpsPerS),
        },
        { head: "Turns /s", width: 11, figure: true, by: (row) => row.turnsPerS, cell: (row) => rate(row.turnsPerS) },
        {
          head: "Longest turn",
          width: 15,
          figure: true,
          by: (row) => row.longestTurnMs,
          cell: (row) => atMost(row.longestTurnMs),
        },
      ]}
    />
  );
}

function Memory({ node }: { node: string }) {
  const [profile, setProfile] = useState<MemoryProfile | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [counting, setCounting] = useState(false);
  const ended = useRef(new AbortController());
  useEffect(() => () => ended.current.abort(), []);
  async function look() {
    setCounting(true);
    try {
      setProfile(
        await ask<MemoryProfile>(
          "GET",
          fill("/nodes/{node}/profile/memory", {}, { node }),
          undefined,
          ended.current.signal,
          PATIENCE_MS,
        ),
      );
      setProblem(null);
    } catch (error) {
      if (!ended.current.signal.aborted) setProblem(problemOf(error));
    }
    setCounting(false);
  }
  return (
    <section>
      <h2 class="section-title">Memory</h2>
      <p class="in-place">
        <Action needs="administrator" disabled={counting} onClick={() => void look()}>
          {profile ? "Count again" : "Count"}
        </Action>{" "}
        <span class="soft" role="status">
          {counting
            ? "The node counts its memory; with a million clients that takes some seconds."
            : "The audit has each count."}
        </span>
      </p>
      {problem && <Failed problem={problem} />}
      {profile && <MemoryTable profile={profile} />}
    </section>
  );
}

function MemoryTable({ profile }: { profile: MemoryProfile }) {
  const rows = structures(profile);
  const whole = profile.resident_bytes;
  const signed = (n: number) => (n < 0 ? `−${bytes(-n)}` : bytes(n));
  const largest = rows[0];
  const differs = sumOf(profile) - whole;
  return (
    <>
      <p class="answer">
        The process has {bytes(whole)} of resident memory
        {largest && (
          <>
            ; the largest part is {words(largest.structure)}, {share(largest.bytes / Math.max(1, whole))}
          </>
        )}
        .{" "}
        {differs === 0
          ? "The rows together are the resident memory."
          : `The rows together are ${signed(differs)} beside it.`}
      </p>
      <Table
        label="Memory by structure"
        rows={rows}
        keyOf={(row) => row.structure}
        columns={[
          { head: "Structure", by: (row) => row.structure, cell: (row) => words(row.structure) },
          { head: "Number", width: 13, figure: true, by: (row) => row.count, cell: (row) => count(row.count) },
          { head: "Memory", width: 12, figure: true, by: (row) => row.bytes, cell: (row) => signed(row.bytes) },
          {
            head: "Share",
            width: 18,
            figure: true,
            by: (row) => row.bytes,
            cell: (row) => (
              <>
                <Bar part={row.bytes / Math.max(1, whole)} />{" "}
                {row.bytes < 0 ? unknown : share(row.bytes / Math.max(1, whole))}
              </>
            ),
          },
          {
            head: "Each",
            width: 11,
            figure: true,
            cell: (row) => (row.count ? bytes(Math.abs(row.bytes) / row.count) : unknown),
          },
          { head: "How known", width: 12, cell: (row) => row.how },
        ]}
      />
    </>
  );
}

function Cpu({ node, name }: { node: string; name: string }) {
  const [seconds, setSeconds] = useState(10);
  const [begun, setBegun] = useState<{ at: number; seconds: number; abort: AbortController } | null>(null);
  const [profile, setProfile] = useState<CpuProfile | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const latest = useRef(begun);
  latest.current = begun;
  // The node ends a profile with the connection of whoever asked.
  useEffect(() => () => latest.current?.abort.abort(), []);
  async function start() {
    const abort = new AbortController();
    setBegun({ at: Date.now(), seconds, abort });
    setProblem(null);
    try {
      setProfile(
        await ask<CpuProfile>(
          "POST",
          fill("/nodes/{node}/profile/cpu", { seconds, functions: true }, { node }),
          undefined,
          abort.signal,
          seconds * 1000 + PATIENCE_MS,
        ),
      );
    } catch (error) {
      if (!abort.signal.aborted) setProblem(problemOf(error));
    }
    setBegun(null);
  }
  return (
    <section>
      <h2 class="section-title">CPU time</h2>
      <p class="in-place">
        <label>
          Sample for{" "}
          <select
            value={seconds}
            disabled={begun !== null}
            onChange={(event) => setSeconds(Number(event.currentTarget.value))}
          >
            {[5, 10, 30, 60].map((one) => (
              <option key={one} value={one}>
                {one} s
              </option>
            ))}
          </select>
        </label>
        {begun ? (
          <button type="button" onClick={() => begun.abort.abort()}>
            Stop
          </button>
        ) : (
          <Action needs="administrator" onClick={() => void start()}>
            Start
          </Action>
        )}
        <span class="soft" role="status">
          {begun ? (
            <Left {...begun} />
          ) : (
            "The node takes 199 samples for each second of CPU time; the audit has each profile."
          )}
        </span>
      </p>
      {problem && <Failed problem={problem} />}
      {profile && <Made profile={profile} name={name} />}
    </section>
  );
}

function Left({ at, seconds }: { at: number; seconds: number }) {
  void second.value;
  const left = Math.ceil(seconds - (Date.now() - at) / 1000);
  return <>{left > 0 ? `The node samples for ${left} s more.` : "The node sends the profile."}</>;
}

function save(file: string, content: Blob) {
  const url = URL.createObjectURL(content);
  const anchor = document.createElement("a");
  [anchor.href, anchor.download] = [url, file];
  anchor.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function Made({ profile, name }: { profile: CpuProfile; name: string }) {
  const stacks = stacksOf(profile);
  const lost = profile.lost > 0 ? `, ${plural(profile.lost, "more sample")} lost` : "";
  const saveJson = () => save("cpu.json", new Blob([JSON.stringify(profile)], { type: "application/json" }));
  return (
    <>
      <p class="answer">
        {plural(profile.samples, "sample")} of {(profile.cpu_ms / 1000).toFixed(1)} s of CPU time in{" "}
        {Math.round(profile.lasted_ms / 1000)} s{lost}.
      </p>
      {profile.stacks.length === 0 ? (
        <Empty>The node used too little CPU time for a sample.</Empty>
      ) : stacks ? (
        <Named profile={profile} stacks={stacks} name={name} saveJson={saveJson} />
      ) : (
        <div class="notice warn" role="status">
          <span class="notice-text">
            The node that serves this page has no symbols of the build that {visible(name)} runs, so that functions have
            no names: install <code>heraldmq-dbgsym</code> on it. Or save the addresses, and on a machine that has the
            symbols run <code>heraldmq profile cpu --from cpu.json</code>.
          </span>{" "}
          <button type="button" onClick={saveJson}>
            Save cpu.json
          </button>
        </div>
      )}
    </>
  );
}

function Named({
  profile,
  stacks,
  name,
  saveJson,
}: {
  profile: CpuProfile;
  stacks: Stack[];
  name: string;
  saveJson(): void;
}) {
  const title = `CPU of node ${name}, HeraldMQ ${profile.version}, ${Math.round(profile.lasted_ms / 1000)} s`;
  const graph = flameGraph(title, stacks);
  const part = (samples: number) => share(samples / Math.max(1, profile.samples));
  const savePprof = async () => save("cpu.pb.gz", await compressed(pprofOf(stacks, profile.hertz, profile.lasted_ms)));
  return (
    <>
      <p class="in-place">
        <button type="button" onClick={() => save("cpu.svg", new Blob([svgOf(graph)], { type: "image/svg+xml" }))}>
          Save cpu.svg
        </button>
        <button type="button" onClick={() => void savePprof()}>
          Save cpu.pb.gz
        </button>
        <button type="button" onClick={saveJson}>
          Save cpu.json
        </button>
        <span class="soft">
          Functions that were inlined are not named; <code>heraldmq profile cpu --from cpu.json</code> names them.
        </span>
      </p>
      <div class="table-box flames" role="region" aria-label="Flame graph" tabIndex={0}>
        <svg
          width={WIDTH}
          height={graph.height}
          viewBox={`0 0 ${WIDTH} ${graph.height}`}
          role="img"
          aria-label={`Flame graph: ${visible(title)}. The table below has the functions that were seen most often.`}
        >
          {graph.rectangles.map(({ x, y, width, color, label, tooltip }, n) => (
            <g key={n}>
              <title>{visible(tooltip)}</title>
              <rect x={x} y={y} width={width} height={ROW - 1} rx={1} fill={color} />
              {label && (
                <text x={x + 3} y={y + 12}>
                  {visible(label)}
                </text>
              )}
            </g>
          ))}
        </svg>
      </div>
      <Table
        label="Functions"
        open
        rows={functionsOf(stacks).slice(0, LISTED)}
        keyOf={(row) => row.name}
        columns={[
          {
            head: "Function",
            cell: (row) => (
              <span class="foreign" title={visible(row.name)}>
                {visible(row.name)}
              </span>
            ),
          },
          { head: "Itself", width: 9, figure: true, by: (row) => row.itself, cell: (row) => part(row.itself) },
          { head: "With calls", width: 12, figure: true, by: (row) => row.total, cell: (row) => part(row.total) },
        ]}
      />
    </>
  );
}
