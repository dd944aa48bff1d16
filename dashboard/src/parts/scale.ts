// The top of a chart's scale: it grows at once to a round number, and shrinks when all has been below half of it for a minute.

export function roundUp(n: number): number {
  if (n <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => n <= top * (1 + 1e-9))!;
}

/** The powers of ten around what is shown, for an axis that is logarithmic. */
export function decades(values: number[]): [number, number] {
  const positive = values.filter((value) => value > 0);
  if (positive.length === 0) return [1, 10];
  const [low, high] = [Math.floor(Math.log10(Math.min(...positive))), Math.ceil(Math.log10(Math.max(...positive)))];
  return [10 ** low, 10 ** Math.max(high, low + 1)];
}

export interface Scale {
  top: number;
  /** Since when all has been below half of it. */
  lowSince: number | null;
}

export function follow(scale: Scale | null, highest: number, now: number): Scale {
  const fitting = roundUp(highest);
  if (scale === null || fitting > scale.top) return { top: fitting, lowSince: null };
  if (highest > scale.top / 2) return { top: scale.top, lowSince: null };
  const lowSince = scale.lowSince ?? now;
  return now - lowSince >= 60_000 ? { top: fitting, lowSince: null } : { top: scale.top, lowSince };
}
