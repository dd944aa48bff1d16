// The order of rows that somebody has chosen: by a column, upwards or downwards. What is not known comes last.

export interface Order {
  head: string;
  down: boolean;
}

export type Sortable = string | number | null | undefined;

export function ordered<Row>(rows: readonly Row[], by: (row: Row) => Sortable, down: boolean): Row[] {
  const sign = down ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [by(one), by(other)];
    if (a == null || b == null) return a == null ? (b == null ? 0 : 1) : -1;
    return a === b ? 0 : a < b ? -sign : sign;
  });
}

/** What a click on the head of a column makes of an order: upwards, downwards, none. */
export const clicked = (order: Order | null, head: string): Order | null =>
  order?.head !== head ? { head, down: false } : order.down ? null : { head, down: true };
