// Payloads as people write and read them.
import { visible } from "./format";

export type Form = "text" | "json" | "hexadecimal";

/** The bytes of what was written; an error says what is wrong with it. */
export function bytesOf(text: string, form: Form): Uint8Array {
  if (form === "json") {
    try {
      JSON.parse(text);
    } catch (error) {
      throw new Error(`This is not JSON: ${(error as Error).message}`);
    }
  }
  if (form !== "hexadecimal") return new TextEncoder().encode(text);
  const digits = text.replace(/\s+/g, "");
  if (!/^([0-9a-f]{2})*$/i.test(digits))
    throw new Error("Hexadecimal has two digits, 0 to 9 and a to f, for each byte.");
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** For a body of JSON. */
export function base64(payload: Uint8Array): string {
  let text = "";
  for (const byte of payload) text += String.fromCharCode(byte);
  return btoa(text);
}

const most = 2000;

/** A payload as text, or in hexadecimal if it is none. */
export function shown(payload: Uint8Array): string {
  if (payload.length === 0) return "(empty)";
  const cut = payload.length > most ? "…" : "";
  const head = payload.subarray(0, most);
  try {
    // A character may be cut at the end of what is shown.
    return visible(new TextDecoder("utf-8", { fatal: true }).decode(head, { stream: cut !== "" })) + cut;
  } catch {
    return (
      "hex " +
      Array.from(head.subarray(0, most / 4), (byte) => byte.toString(16).padStart(2, "0")).join(" ") +
      (payload.length > most / 4 ? "…" : "")
    );
  }
}
