// A table whose columns keep their widths: text begins its column, figures end it.
import type { ComponentChildren, Key } from "preact";

export interface Column<Row> {
  head: string;
  cell(row: Row): ComponentChildren;
  /** Width in characters; the column that has none gets what is left. */
  width?: number;
  figure?: boolean;
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
}

export function Table<Row>({ label, columns, rows, keyOf, tone, open, stale }: TableProps<Row>) {
  const least = columns.reduce((sum, column) => sum + (column.width ?? 24), 0);
  return (
    <div class="table-box" role="region" aria-label={label} tabIndex={0}>
      <table class={stale ? "stale" : ""} style={{ minWidth: `${least}ch` }} aria-rowcount={open ? -1 : undefined} aria-label={label}>
        <colgroup>{columns.map((column) => <col key={column.head} style={column.width ? { width: `${column.width}ch` } : {}} />)}</colgroup>
        <thead>
          <tr>{columns.map((column) => <th key={column.head} scope="col" class={column.figure ? "figure" : ""}>{column.head}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)} class={tone?.(row) ?? ""}>
              {columns.map((column, n) => n === 0
                ? <th key={column.head} scope="row" class={column.figure ? "figure" : ""}>{column.cell(row)}</th>
                : <td key={column.head} class={column.figure ? "figure" : ""}>{column.cell(row)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
