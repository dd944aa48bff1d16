// The colours of lines, by what they show: the same thing has the same colour on every page.

export const colors = { in: 1, out: 2, p50: 3, p99: 7, longest: 8, connections: 1, sessions: 2, queued: 1 } as const;
