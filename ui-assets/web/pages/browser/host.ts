// The file browser's connection to its host.
import { type Serve, link } from "../../bridge/core.ts";

let answer: Serve | undefined;

/** Sets the handler of the host's requests. */
export const answerWith = (serve: Serve): void => void (answer = serve);

export const { connect, context, on, ask, notify } = link(
  { name: "bailiwick-files", title: "Files", version: "1", capabilities: { tools: {} } },
  (method, params, extra) => answer?.(method, params, extra),
);
