// Loads the planned changes of a question.
import { planned } from "../diff/change.ts";
import { Diff } from "../diff/view.tsx";
import { items, object } from "../json.ts";
import { host } from "./api.ts";

const review = object({ changes: items(planned) });

export const loadPreview = async (question: string): Promise<Diff> => new Diff(review(await host(`review/${question}`)).changes);
