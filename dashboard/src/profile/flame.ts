// A CPU profile as functions below the functions that called them, as a flame graph, and as a list.
import type { CpuProfile } from "../api/api.types";
import { plural } from "../words/format";

/** A stack of functions, the outermost first, and how often it was seen. */
export interface Stack {
  thread: string;
  functions: string[];
  count: number;
}

/** `null`: the node that was asked has no symbols, or the profile names what is not in it. */
export function stacksOf(profile: CpuProfile): Stack[] | null {
  const { functions, threads } = profile;
  if (!functions) return null;
  const stacks = profile.stacks.map((stack) => {
    const thread = threads[stack.thread];
    const names = stack.places.map((place) => functions[place]).reverse();
    if (!thread || names.includes(undefined)) return null;
    return { thread: thread.name || `thread ${thread.id}`, functions: names as string[], count: stack.count };
  });
  return stacks.includes(null) ? null : (stacks as Stack[]);
}

export interface Seen {
  name: string;
  /** Samples in which it was the innermost function. */
  itself: number;
  /** Samples in which it was anywhere. */
  total: number;
}

/** All functions, those first that were innermost most often. */
export function functionsOf(stacks: Stack[]): Seen[] {
  const seen = new Map<string, Seen>();
  const of = (name: string) => seen.get(name) ?? seen.set(name, { name, itself: 0, total: 0 }).get(name)!;
  for (const { functions, count } of stacks) {
    if (functions.length > 0) of(functions.at(-1)!).itself += count;
    // One that calls itself is seen once.
    for (const name of new Set(functions)) of(name).total += count;
  }
  return [...seen.values()].sort((a, b) => b.itself - a.itself || b.total - a.total || (a.name < b.name ? -1 : 1));
}

interface Node {
  count: number;
  callees: Map<string, Node>;
}

function treeOf(stacks: Stack[]): Node {
  const root: Node = { count: 0, callees: new Map() };
  for (const { thread, functions, count } of stacks) {
    let node = root;
    node.count += count;
    for (const name of [thread, ...functions]) {
      if (!node.callees.has(name)) node.callees.set(name, { count: 0, callees: new Map() });
      node = node.callees.get(name)!;
      node.count += count;
    }
  }
  return root;
}

/** Of the picture, in px. */
export const WIDTH = 1600;
/** Of a function, in px. */
export const ROW = 17;
/** Above and below the functions, in px. */
const MARGIN = 30;
/** Of a letter of the font, in px. */
const LETTER = 6.7;
/** What is narrower is not drawn, in px. */
const NARROWEST = 0.2;

export interface Rectangle {
  x: number;
  y: number;
  width: number;
  color: string;
  /** As much of the name as there is room for. */
  label: string;
  /** The whole name, with how often it was seen. */
  tooltip: string;
}

export interface FlameGraph {
  title: string;
  height: number;
  rectangles: Rectangle[];
}

/** Each function is as wide as it was seen often, and stands above the function that called it. */
export function flameGraph(title: string, stacks: Stack[]): FlameGraph {
  const root = treeOf(stacks);
  const sample = WIDTH / Math.max(1, root.count);
  const rectangles: Rectangle[] = [];
  let rows = 0;
  function draw(name: string, node: Node, x: number, level: number) {
    const width = node.count * sample;
    if (width < NARROWEST) return;
    rows = Math.max(rows, level + 1);
    const tooltip = `${name} (${plural(node.count, "sample")}, ${((node.count * 100) / Math.max(1, root.count)).toFixed(2)} %)`;
    // The row for now: the height is known when all are drawn.
    rectangles.push({
      x,
      y: level,
      width: Math.max(NARROWEST, width - 0.5),
      color: colorOf(name),
      label: clipped(name, width),
      tooltip,
    });
    for (const [callee, below] of [...node.callees].sort(([a], [b]) => (a < b ? -1 : 1))) {
      draw(callee, below, x, level + 1);
      x += below.count * sample;
    }
  }
  draw("all threads", root, 0, 0);
  const height = rows * ROW + 2 * MARGIN;
  return { title, height, rectangles: rectangles.map((one) => ({ ...one, y: height - MARGIN - (one.y + 1) * ROW })) };
}

function clipped(name: string, width: number): string {
  const room = Math.max(0, Math.floor((width - 6) / LETTER));
  const letters = [...name];
  if (letters.length <= room) return name;
  return room < 3 ? "" : `${letters.slice(0, room - 2).join("")}..`;
}

/** The same for a function wherever it is; light enough for black letters. */
function colorOf(name: string): string {
  let hash = 0;
  for (let n = 0; n < name.length; n++) hash = (hash * 31 + name.charCodeAt(n)) >>> 0;
  return `rgb(${215 + (hash % 40)},${140 + ((hash >>> 6) % 90)},${80 + ((hash >>> 13) % 50)})`;
}

const escapes: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
/** A text as XML has it; what no XML may have becomes a question mark. */
const escaped = (text: string) =>
  text.replace(/[&<>"]/g, (letter) => escapes[letter]!).replace(/[\u0000-\u001f\ufffe\uffff]/g, "?");

/** As a file: SVG without a script. */
export function svgOf({ title, height, rectangles }: FlameGraph): string {
  const shapes = rectangles.map(
    ({ x, y, width, color, label, tooltip }) =>
      `<g><title>${escaped(tooltip)}</title><rect x="${x.toFixed(2)}" y="${y}" width="${width.toFixed(2)}" height="${ROW - 1}" rx="1" fill="${color}"/>${label && `<text x="${(x + 3).toFixed(2)}" y="${y + 12}">${escaped(label)}</text>`}</g>`,
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" font-family="monospace" font-size="11">`,
    `<rect width="100%" height="100%" fill="#fffaf0"/>`,
    `<text x="${WIDTH / 2}" y="20" font-size="15" text-anchor="middle">${escaped(title)}</text>`,
    ...shapes,
    "</svg>",
    "",
  ].join("\n");
}
