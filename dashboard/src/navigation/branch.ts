// The retained messages of a branch of the tree of topics.

export interface Branch {
  topics: string[];
  /** There are more. */
  more: boolean;
}

/** The topics at a level and below it that have retained messages, up to a number. */
export async function branchOf(
  topic: string,
  limit: number,
  load: (filter: string, after: string | undefined) => Promise<{ items: { topic: string }[]; next: string | null }>,
): Promise<Branch> {
  const topics: string[] = [];
  let after: string | undefined;
  do {
    const page = await load(`${topic}/#`, after);
    topics.push(...page.items.map((row) => row.topic));
    after = page.next ?? undefined;
  } while (after !== undefined && topics.length < limit);
  return { topics: topics.slice(0, limit), more: after !== undefined || topics.length > limit };
}
