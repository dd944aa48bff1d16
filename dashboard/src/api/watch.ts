// What a client sends and receives each second. Its node counts all of its packets while a stream is open: one tab of a browser has it.
import { useEffect, useState } from "preact/hooks";
import { apiUrl, fill, fitsPath } from "./api";
import type { ClientRates } from "./api.types";
import { whileSeen } from "./events";
import { bytes, rate, unknown } from "../words/format";

const retryMs = 10_000;

/** `null`: not known (yet). */
export function useClientRates(id: string, isConnected: boolean): ClientRates | null {
  const [rates, setRates] = useState<ClientRates | null>(null);
  useEffect(() => {
    setRates(null);
    if (!isConnected || !fitsPath(id)) return;
    return whileSeen(
      "heraldmq-watch",
      () => setRates(null),
      (ended) => watch(id, ended, setRates),
    );
  }, [id, isConnected]);
  return rates;
}

function watch(id: string, ended: AbortSignal, set: (rates: ClientRates | null) => void): void {
  const source = new EventSource(apiUrl(fill("/clients/{client_id}/watch", { seconds: 3600 }, { client_id: id })));
  let timer: ReturnType<typeof setTimeout> | undefined;
  ended.addEventListener("abort", () => {
    source.close();
    clearTimeout(timer);
  });
  source.addEventListener("rates", (message: MessageEvent<string>) => set(JSON.parse(message.data) as ClientRates));
  source.onerror = () => {
    if (ended.aborted) return;
    set(null);
    // The browser connects again by itself unless the answer was an error, for example because the node has as many streams as it may.
    if (source.readyState === EventSource.CLOSED) timer = setTimeout(() => watch(id, ended, set), retryMs);
  };
}

/** Messages and bytes per second: `12/s, 3.4 kB/s`. */
export const flow = (messages: number | null | undefined, size: number | null | undefined): string =>
  messages == null && size == null ? unknown : `${rate(messages)}/s, ${bytes(size)}/s`;
