// The cursors of the pages that were passed; the last is that of the page that is shown, none is the first page.
export const back = (cursors: string[]): string[] => cursors.slice(0, -1);
export const forward = (cursors: string[], next: string): string[] => [...cursors, next];
