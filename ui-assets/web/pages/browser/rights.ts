// Access rights of the worker, requested in batches of paths.
import { signal } from "@preact/signals-core";

import { type Rights, authority } from "./server.ts";

const MOST = 200;

const known = signal<ReadonlyMap<string, Rights>>(new Map());
/** The worker whose rights are shown. */
export const worker = signal<string | undefined>(undefined);
export const workers = signal<readonly string[]>([]);
let asked = new Set<string>();
let waiting: string[] = [];

async function ask(): Promise<void> {
  const of = asked;
  while (of === asked && waiting.length > 0) {
    const answer = await authority(waiting.splice(0, MOST), worker.value);
    // Another worker was selected while the request was pending.
    if (of !== asked) return;
    worker.value = answer.worker;
    workers.value = answer.workers;
    known.value = new Map([...known.value, ...answer.rights]);
  }
}

/** The worker's rights on `path`, or `undefined` if they are not loaded yet. */
export const rightsOf = (path: string): Rights | undefined => known.value.get(path);

/** Requests the rights of the paths that were not requested before. */
export function wantRights(paths: readonly string[]): void {
  const fresh = paths.filter((path) => !asked.has(path));
  for (const path of fresh) asked.add(path);
  // Servers without the tool get no badges.
  if (waiting.push(...fresh) === fresh.length && fresh.length > 0) queueMicrotask(() => ask().catch(() => (waiting = [])));
}

/** Switches to another worker and reloads the rights. */
export function lookAs(name: string | undefined): void {
  asked = new Set();
  waiting = [];
  worker.value = name;
  known.value = new Map();
}

/** The badge of a pair of rights: symbol, description and color. */
export function badge({ read, write }: Rights): readonly [sign: string, words: string, tone: string] {
  if (read === "deny") return ["denied", "may not be read", "bad"];
  if (read === "ask") return ["asks to read", "reading it asks a person", "warn"];
  if (write === "allow") return ["editable", "may be read and changed", ""];
  if (write === "ask") return ["asks", "may be read; changes ask a person", "warn"];
  return ["read-only", "may be read, not changed", "only"];
}
