// Loads the changes of a question, a call or an undo.
import { planned, resources } from "../diff/change.ts";
import { Diff } from "../diff/view.tsx";
import { items, object } from "../json.ts";
import { host } from "./api.ts";

const changed = object({ changes: items(planned), resources });

function diffOf(found: unknown, plan: Diff["plan"]): Diff {
  const { changes, resources } = changed(found);
  return Object.assign(new Diff(changes), { resources, plan });
}

/** The changes at a path of the API, such as `call/ID`. */
export const loadChanges = async (path: string, plan: Diff["plan"]): Promise<Diff> => diffOf(await host(path), plan);

/** The planned changes of a question. */
export const loadPreview = (question: string): Promise<Diff> => loadChanges(`review/${question}`, "Will");

/** A call, a worker or, for those that have ended, the path of an agent. */
export type UndoOf = { readonly call: string } | { readonly worker: string } | { readonly agent: string };

/** The changes that can be undone, and what undoing them would do. */
export async function loadUndo(of: UndoOf): Promise<{ readonly undoes: readonly number[]; readonly diff: Diff }> {
  const found = await host<{ readonly undoes: readonly number[] }>("preview-undo", { of });
  return { undoes: found.undoes, diff: diffOf(found, "Will") };
}
