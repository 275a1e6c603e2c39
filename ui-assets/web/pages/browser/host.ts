// The frame that the page is in in, its connection to the host out; one for the whole page.
import { type Serve, link } from "../../bridge/core.ts";

let answer: Serve | undefined;

/** Says what answers the host. */
export const answerWith = (serve: Serve): void => void (answer = serve);

export const { connect, context, on, ask, notify } = link(
  { name: "bailiwick-files", title: "Files", version: "1", capabilities: { tools: {} } },
  (method, params, extra) => answer?.(method, params, extra),
);
