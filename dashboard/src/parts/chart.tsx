// A line chart: one axis, a fixed window that ends at the last sample, a cursor and a zoom that all charts share.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { Dialog } from "./dialog";
import { plural, bytes, count, middle, milliseconds, rate, share, tick, time, unknown, visible } from "../words/format";
import { stack, type Values } from "../api/history";
import type { Mark } from "../api/marks";
import { theme, zone } from "../navigation/preferences";
import { decades, follow, type Scale } from "./scale";

export interface Line {
  name: string;
  /** Number of the colour token. */
  color: number;
  values: Values;
  /** Where nodes are missing from a sum: the same line, dashed. */
  lacking?: Values;
}

const units = { rate, count, bytes, milliseconds, cores: (n: number | null | undefined) => share(n) };

interface ChartProps {
  title: string;
  unit: keyof typeof units;
  seconds: number[];
  lines: Line[];
  windowSeconds: number;
  /** Whether people may make the axis logarithmic. */
  mayBeLog?: boolean;
  /** Whether lines stand on one another, the first at the bottom. */
  stacked?: boolean;
  /** What the table has beside the lines. */
  more?: Line[];
  /** What has happened meanwhile. */
  marks?: readonly Mark[];
}

/** Titles of the charts whose axis is logarithmic, until the page is left. */
const logarithmic = signal<readonly string[]>([]);
const zoom = signal<[number, number] | null>(null);
const together = uPlot.sync("charts");
/** The shortest time that a chart shows, in seconds. */
const SHORTEST_S = 120;
const height = 160;
const gutter = 44;

export function Chart(props: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const [plot, setPlot] = useState<uPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const [asTable, setAsTable] = useState(false);
  const latest = useRef(props);
  latest.current = props;
  const seen = useRef(true);
  const isLog = logarithmic.value.includes(props.title);
  const shape =
    props.lines.map((line) => `${line.name}:${line.color}:${line.lacking ? 1 : 0}`).join() + isLog + props.stacked;

  useEffect(() => {
    const element = box.current!;
    const made = make(element, latest, setAt);
    setPlot(made);
    const resized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    resized.observe(element);
    const observed = new IntersectionObserver(([entry]) => {
      seen.current = entry!.isIntersecting;
      if (seen.current) made.setData(data(latest.current));
    });
    observed.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => made.redraw(false);
    scheme.addEventListener("change", redraw);
    const stops = [
      theme.subscribe(() => requestAnimationFrame(redraw)),
      zone.subscribe(redraw),
      zoom.subscribe(() => made.setData(data(latest.current))),
    ];
    return () => {
      resized.disconnect();
      observed.disconnect();
      scheme.removeEventListener("change", redraw);
      for (const stop of stops) stop();
      made.destroy();
    };
  }, [shape, props.unit]);

  useEffect(() => {
    if (plot && seen.current) plot.setData(data(props));
  }, [plot, props.seconds, props.lines, props.windowSeconds]);

  useEffect(() => {
    if (plot && seen.current) plot.redraw(false);
  }, [plot, props.marks]);

  const show = units[props.unit];
  const index = at ?? props.seconds.length - 1;
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{props.title}</span>
        <span class={`legend ${props.unit} ${props.stacked && props.lines.length > 2 ? "many" : ""}`}>
          {props.lines.map((line) => (
            <span key={line.name} class={`key c${line.color}`}>
              {visible(line.name)} <span class="key-value">{show(line.values[index] ?? line.lacking?.[index])}</span>
            </span>
          ))}
        </span>
        <span class="chart-buttons">
          {props.mayBeLog && (
            <button
              type="button"
              class="quiet"
              aria-pressed={isLog}
              aria-label={`${props.title}, log axis`}
              onClick={() =>
                (logarithmic.value = isLog
                  ? logarithmic.value.filter((title) => title !== props.title)
                  : [...logarithmic.value, props.title])
              }
            >
              log
            </button>
          )}
          <button type="button" class="quiet" aria-label={`${props.title} as table`} onClick={() => setAsTable(true)}>
            table
          </button>
        </span>
      </figcaption>
      <div ref={box} class="plot" role="img" aria-label={sentence(props)} />
      {asTable && <AsTable {...props} close={() => setAsTable(false)} />}
    </figure>
  );
}

function sentence({ title, unit, lines, windowSeconds, seconds, marks = [] }: ChartProps): string {
  const parts = lines.map((line) => {
    const known = line.values.filter((value): value is number => value !== null);
    if (known.length === 0) return `${line.name}: not known`;
    return `${line.name}: ${units[unit](known.at(-1))}, between ${units[unit](Math.min(...known))} and ${units[unit](Math.max(...known))}`;
  });
  const shown = marks.filter((mark) => mark.at > (seconds.at(-1) ?? 0) - windowSeconds);
  const marked = shown.length > 0 ? `. ${shown.slice(-5).map(said).join("; ")}` : "";
  return `${title}, ${plural(windowSeconds / 60, "minute")}. ${parts.join("; ")}${marked}`;
}

const said = (mark: Mark): string => `${time(mark.at * 1000, mark.at * 1000, zone.value)} ${mark.text}`;

function data({ seconds, lines, stacked }: ChartProps): uPlot.AlignedData {
  if (stacked) {
    // The areas; above each its edge, dashed where nodes are missing. An area without height has none: it would hide that below.
    const known = lines.map((line) => line.values.map((value, n) => value ?? line.lacking?.[n] ?? null));
    const lacks = (n: number) => lines.some((line) => line.lacking?.[n] != null);
    return [
      seconds,
      ...stack(known).flatMap((top, line) => {
        const hasEdge = (n: number) => line === 0 || [n - 1, n, n + 1].some((at) => (known[line]![at] ?? 0) > 0);
        return [
          top,
          top.map((value, n) => (lacks(n) || !hasEdge(n) ? null : value)),
          top.map((value, n) => (lacks(n) && hasEdge(n) ? value : null)),
        ];
      }),
    ] as uPlot.AlignedData;
  }
  return [
    seconds,
    ...lines.flatMap((line) => (line.lacking ? [line.values, line.lacking] : [line.values])),
  ] as uPlot.AlignedData;
}

const token = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function make(element: HTMLElement, latest: { current: ChartProps }, setAt: (index: number | null) => void): uPlot {
  let scale: Scale | null = null;
  const { lines, unit, title, stacked } = latest.current;
  const isLog = logarithmic.peek().includes(title);
  const fill = (line: Line) => () => `${token(`--c${line.color}`)}59`;
  const bands = stacked
    ? lines.slice(1).map((line, n): uPlot.Band => ({ series: [3 * n + 4, 3 * n + 1], fill: fill(line) }))
    : [];
  const series = stacked
    ? lines.flatMap((line, n): uPlot.Series[] => {
        const edge: uPlot.Series = {
          stroke: () => token(`--c${line.color}`),
          width: 1.5,
          points: { show: false },
          spanGaps: false,
        };
        const area: uPlot.Series = { ...edge, stroke: "transparent", ...(n === 0 ? { fill: fill(line) } : {}) };
        return [area, edge, { ...edge, dash: [4, 4] }];
      })
    : lines.flatMap((line): uPlot.Series[] => {
        const drawn: uPlot.Series = {
          stroke: () => token(`--c${line.color}`),
          width: 1.5,
          points: { show: false },
          spanGaps: false,
        };
        return line.lacking ? [drawn, { ...drawn, dash: [4, 4] }] : [drawn];
      });
  const text = `11px ${getComputedStyle(document.body).fontFamily}`;
  const axis: uPlot.Axis = {
    stroke: () => token("--soft"),
    font: text,
    ticks: { show: false },
    grid: { stroke: () => token("--rule"), width: 1 },
    border: { show: false },
  };
  return new uPlot(
    {
      width: element.clientWidth || 300,
      height,
      // Words of marks stand above.
      padding: [latest.current.marks ? 18 : 8, 18, 0, 0],
      legend: { show: false },
      cursor: {
        sync: { key: together.key, setSeries: false },
        points: { size: 5 },
        drag: { x: true, y: false, setScale: false },
        bind: {
          dblclick: () => () => {
            zoom.value = null;
            return null;
          },
        },
      },
      bands,
      hooks: {
        draw: [(plot) => drawMarks(plot, latest.current.marks ?? [])],
        setCursor: [(plot) => setAt(plot.cursor.idx ?? null)],
        setSelect: [
          (plot) => {
            if (plot.select.width < 4) return;
            zoom.value = [
              plot.posToVal(plot.select.left, "x"),
              plot.posToVal(plot.select.left + plot.select.width, "x"),
            ];
            plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          },
        ],
      },
      scales: {
        x: {
          range: () => {
            const end = latest.current.seconds.at(-1) ?? Date.now() / 1000;
            // A node that has just been started has few samples: they fill the chart.
            const first = latest.current.seconds[0] ?? end;
            return zoom.value ?? [Math.max(end - latest.current.windowSeconds, Math.min(first, end - SHORTEST_S)), end];
          },
        },
        y: {
          distr: isLog ? 3 : 1,
          range: (plot) => {
            const end = plot.data[0].at(-1) ?? 0;
            const inWindow = plot.data
              .slice(1)
              .flatMap((values) =>
                [...(values as Values)].filter(
                  (value, n): value is number =>
                    value !== null && plot.data[0][n]! >= end - latest.current.windowSeconds,
                ),
              );
            if (isLog) return decades(inWindow);
            scale = follow(scale, Math.max(0, ...inWindow), Date.now());
            return [0, scale.top];
          },
        },
      },
      axes: [
        {
          ...axis,
          size: 26,
          space: 64,
          values: (_, splits) => splits.map((at) => time(at * 1000, at * 1000, zone.value).slice(0, 5)),
        },
        {
          ...axis,
          size: gutter,
          space: 34,
          values: (_, splits) =>
            splits.map((value: number | null) => (value === null ? "" : tick(unit === "cores" ? value * 100 : value))),
        },
      ],
      series: [{}, ...series],
    },
    data(latest.current),
    element,
  );
}

/** A thin line at each moment; above, its words where there is room, the latest first, and how many had none: the table has all. */
function drawMarks(plot: uPlot, marks: readonly Mark[]) {
  const { ctx, bbox } = plot;
  const { min, max } = plot.scales.x!;
  if (min == null || max == null) return;
  const pixel = devicePixelRatio;
  const gap = 3 * pixel;
  const end = bbox.left + bbox.width;
  ctx.save();
  ctx.font = `${10 * pixel}px ${getComputedStyle(document.body).fontFamily}`;
  ctx.textBaseline = "bottom";
  ctx.textAlign = "left";
  ctx.lineWidth = pixel;
  ctx.strokeStyle = token("--control");
  ctx.fillStyle = token("--soft");
  ctx.setLineDash([2 * pixel, 2 * pixel]);
  let free = end;
  const shown = marks
    .filter((mark) => mark.at >= min && mark.at <= max)
    .map(({ at, text }) => ({ text, x: Math.round(plot.valToPos(at, "x", true)) + (pixel % 2) / 2 }))
    .reverse();
  for (const [n, { x, text }] of shown.entries()) {
    const close = shown.slice(n + 1).findIndex((before, m) => shown[n + m]!.x - before.x > 24 * pixel);
    const others = close < 0 ? shown.length - n - 1 : close;
    const words = middle(text, 28) + (others > 0 ? ` +${others}` : "");
    const width = ctx.measureText(words).width;
    // Behind the line, or before it at the end of the chart.
    const left = x - gap + width <= free ? x - gap : x <= free && free === end ? end - width : null;
    const hasRoom = left !== null && left >= bbox.left - gutter * pixel;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top - (hasRoom ? gap : 0));
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (!hasRoom) continue;
    ctx.fillText(words, left, bbox.top - gap);
    free = left - 2 * gap;
  }
  ctx.restore();
}

function AsTable({ title, unit, seconds, lines: drawn, more = [], marks = [], close }: ChartProps & { close(): void }) {
  const lines = [...drawn, ...more];
  const every = 6;
  /** What has happened in the minute that a row stands for. */
  const meanwhile = (n: number) =>
    marks.filter((mark) => mark.at <= seconds[n]! && mark.at > (seconds[n - every] ?? 0));
  const rows = seconds
    .map((at, n) => ({ at, n }))
    .filter(({ n }) => (seconds.length - 1 - n) % every === 0)
    .reverse();
  return (
    <Dialog title={title} close={close}>
      <div class="scroll" tabIndex={0} role="region" aria-label={title}>
        <table>
          <thead>
            <tr>
              <th scope="col">Time</th>
              {lines.map((line) => (
                <th key={line.name} scope="col" class="figure">
                  {visible(line.name)}
                </th>
              ))}
              {marks.length > 0 && <th scope="col">Meanwhile</th>}
            </tr>
          </thead>
          <tbody>
            {rows.map(({ at, n }) => (
              <tr key={at}>
                <th scope="row">{time(at * 1000, at * 1000, zone.value)}</th>
                {lines.map((line) => (
                  <td key={line.name} class="figure">
                    {line.values[n] == null && line.lacking?.[n] == null
                      ? unknown
                      : units[unit](line.values[n] ?? line.lacking?.[n])}
                  </td>
                ))}
                {marks.length > 0 && (
                  <td>
                    {meanwhile(n)
                      .map((mark) => mark.text)
                      .join(", ")}
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div class="buttons">
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
