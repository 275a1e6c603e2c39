// Loads the changes of a question or call.
import { planned, resources } from "../diff/change.ts";
import { Diff } from "../diff/view.tsx";
import { items, object } from "../json.ts";
import { host } from "./api.ts";

const changed = object({ changes: items(planned), resources });

/** The changes at a path of the API, such as `call/ID`. */
export async function loadChanges(path: string): Promise<Diff> {
  const { changes, resources } = changed(await host(path));
  return Object.assign(new Diff(changes), { resources });
}

/** The planned changes of a question. */
export const loadPreview = async (question: string): Promise<Diff> => Object.assign(await loadChanges(`review/${question}`), { plan: "Will" as const });
