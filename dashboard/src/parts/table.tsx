// A table whose columns keep their widths: text begins its column, figures end it.
import type { ComponentChildren, Key } from "preact";
import { useState } from "preact/hooks";
import { clicked, ordered, type Order, type Sortable } from "../words/order";
import { hiddenColumns } from "../navigation/preferences";

export interface Column<Row> {
  head: string;
  cell(row: Row): ComponentChildren;
  /** Width in characters; the column that has none gets what is left. */
  width?: number;
  figure?: boolean;
  /** By what its head orders the rows that are shown. */
  by?(row: Row): Sortable;
}

interface TableProps<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf(row: Row): Key;
  /** More classes of a row. */
  tone?(row: Row): string;
  /** The total is not known. */
  open?: boolean;
  stale?: boolean;
  /** People may hide columns other than the first; under this name the browser remembers which. */
  choose?: string;
}

export function Table<Row>({ label, columns: all, rows: given, keyOf, tone, open, stale, choose }: TableProps<Row>) {
  const [order, setOrder] = useState<Order | null>(null);
  const hidden = (choose && hiddenColumns.value[choose]) || [];
  const columns = all.filter((column, n) => n === 0 || !hidden.includes(column.head));
  const by = order && columns.find((column) => column.head === order.head)?.by;
  const rows = by ? ordered(given, by, order.down) : given;
  const least = columns.reduce((sum, column) => sum + (column.width ?? 24), 0);
  const table = (
    <div class="table-box" role="region" aria-label={label} tabIndex={0}>
      <table
        class={stale ? "stale" : ""}
        style={{ minWidth: `${least}ch` }}
        aria-rowcount={open ? -1 : undefined}
        aria-label={label}
      >
        <colgroup>
          {columns.map((column) => (
            <col key={column.head} style={column.width ? { width: `${column.width}ch` } : {}} />
          ))}
        </colgroup>
        <thead>
          <tr>
            {columns.map((column) => {
              const sorted = order?.head === column.head ? (order.down ? "descending" : "ascending") : undefined;
              return (
                <th
                  key={column.head}
                  scope="col"
                  class={column.figure ? "figure" : ""}
                  aria-sort={column.by ? (sorted ?? "none") : undefined}
                >
                  {column.by ? (
                    <button type="button" class="sort" onClick={() => setOrder(clicked(order, column.head))}>
                      {column.head}
                      <span aria-hidden="true">{sorted === "descending" ? " ▼" : sorted ? " ▲" : ""}</span>
                    </button>
                  ) : (
                    column.head
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)} class={tone?.(row) ?? ""}>
              {columns.map((column, n) =>
                n === 0 ? (
                  <th key={column.head} scope="row" class={column.figure ? "figure" : ""}>
                    {column.cell(row)}
                  </th>
                ) : (
                  <td key={column.head} class={column.figure ? "figure" : ""}>
                    {column.cell(row)}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
  return choose ? (
    <>
      <Columns name={choose} heads={all.slice(1).map((column) => column.head)} hidden={hidden} />
      {table}
    </>
  ) : (
    table
  );
}

function Columns({ name, heads, hidden }: { name: string; heads: string[]; hidden: string[] }) {
  const set = (head: string, shown: boolean) =>
    (hiddenColumns.value = {
      ...hiddenColumns.value,
      [name]: shown ? hidden.filter((one) => one !== head) : [...hidden, head],
    });
  return (
    <details class="columns-menu">
      <summary>Columns{hidden.length > 0 && ` (${hidden.length} hidden)`}</summary>
      <div class="filters">
        {heads.map((head) => (
          <label key={head} class="check">
            <input
              type="checkbox"
              checked={!hidden.includes(head)}
              onChange={(event) => set(head, event.currentTarget.checked)}
            />{" "}
            {head}
          </label>
        ))}
      </div>
    </details>
  );
}
