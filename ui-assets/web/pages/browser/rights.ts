// Paths that are looked at in, what the worker may do to each out, asked for in batches.
import { signal } from "../../lib/signals.ts";
import { type Rights, authority } from "./server.ts";

const MOST = 200;

const known = signal<ReadonlyMap<string, Rights>>(new Map());
/** Through whose eyes it is looked. */
export const worker = signal<string | undefined>(undefined);
export const workers = signal<readonly string[]>([]);
let asked = new Set<string>();
let waiting: string[] = [];

async function ask(): Promise<void> {
  const of = asked;
  while (of === asked && waiting.length > 0) {
    const answer = await authority(waiting.splice(0, MOST), worker());
    // Another worker was chosen meanwhile.
    if (of !== asked) return;
    worker(answer.worker);
    workers(answer.workers);
    known(new Map([...known(), ...answer.rights]));
  }
}

/** What the worker may do to `path`; nothing as long as that is not known. */
export const rightsOf = (path: string): Rights | undefined => known().get(path);

/** Asks for those of `paths` that were not asked for. */
export function wantRights(paths: readonly string[]): void {
  const fresh = paths.filter((path) => !asked.has(path));
  for (const path of fresh) asked.add(path);
  // A server without the tool has no badges.
  if (waiting.push(...fresh) === fresh.length && fresh.length > 0) queueMicrotask(() => ask().catch(() => (waiting = [])));
}

/** Looks through the eyes of that worker, anew. */
export function lookAs(name: string | undefined): void {
  asked = new Set();
  waiting = [];
  worker(name);
  known(new Map());
}

/** A badge: what stands on it, the same in words, and how it looks. */
export function badge({ read, write }: Rights): readonly [sign: string, words: string, tone: string] {
  if (read === "deny") return ["denied", "may not be read", "bad"];
  if (read === "ask") return ["asks", "reading would ask a person", "warn"];
  if (write === "allow") return ["rw", "may be read and written", ""];
  if (write === "ask") return ["r · asks", "may be read; writing would ask a person", "warn"];
  return ["r", "may be read, not written", "only"];
}
