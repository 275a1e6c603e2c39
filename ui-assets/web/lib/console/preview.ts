// Loads the changes of a question or call.
import { planned } from "../diff/change.ts";
import { Diff } from "../diff/view.tsx";
import { items, object } from "../json.ts";
import { host } from "./api.ts";

const changed = object({ changes: items(planned) });

/** The changes at a path of the API, such as `call/ID`. */
export const loadChanges = async (path: string): Promise<Diff> => new Diff(changed(await host(path)).changes);

/** The planned changes of a question. */
export const loadPreview = async (question: string): Promise<Diff> => Object.assign(await loadChanges(`review/${question}`), { plan: "Will" as const });
