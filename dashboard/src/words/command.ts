// Texts of strangers in commands that an operator may copy into a shell.

const hidden =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const escaped = (character: string) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** One word of a shell. What cannot be seen is written as bash, zsh and ksh read it in `$'…'`. */
export function quote(word: string): string {
  if (/^[\w@%+=:,./-]+$/.test(word) && !word.startsWith("-")) return word;
  if (word.search(hidden) < 0) return `'${word.replaceAll("'", `'\\''`)}'`;
  return `$'${word.replace(/[\\']/g, "\\$&").replace(hidden, escaped)}'`;
}

/** `--url` of the broker that serves a page. Without it, a context or `HERALDMQ_URL` of the operator may name another broker. */
const urlOf = (page: string | undefined): string | undefined => page && new URL(".", page).href.replace(/\/$/, "");

/** `true`: an option without a value; a list: the option once for each value, also for an empty one. Nothing, and an empty text: no option. */
export type Options = Record<string, string | string[] | true | undefined>;

/**
 * A command with what strangers have named: options have their value in the same word, and operands come behind `--`. So no name
 * is read as an option, such as one that sends the key of the operator to another host.
 */
export function commandOf(
  name: string,
  operands: (string | undefined)[] = [],
  options: Options = {},
  page: string | undefined = globalThis.document?.baseURI,
): string {
  const all: Options = { url: urlOf(page), ...options };
  const given = Object.entries(all).flatMap(([option, value]) =>
    value === true
      ? [`--${option}`]
      : [value ?? ""]
          .flat()
          .filter((one) => one !== "" || Array.isArray(value))
          .map((one) => `--${option}=${quote(one)}`),
  );
  const named = operands.flatMap((operand) => (operand ? [quote(operand)] : []));
  return ["heraldmq", name, ...given, ...(named.length ? ["--", ...named] : [])].join(" ");
}

/** JSON in which all that cannot be seen is escaped. */
export const json = (body: unknown): string => JSON.stringify(body).replace(hidden, escaped);
