// The frame that the page is in in, its connection to the host out; one for the whole page.
import { type Serve, link } from "../../bridge/core.ts";
import { signal } from "../../lib/live.ts";
import type { Fields } from "./wire.ts";

let answer: Serve | undefined;

/** Says what answers the host. */
export const answerWith = (serve: Serve): void => void (answer = serve);

/** What the host says it can do. */
export const able = signal<Fields>({});

export const { connect, host, on, ask } = link(
  { name: "bailiwick-files", title: "Files", version: "1", capabilities: { tools: {} } },
  (method, params, extra) => answer?.(method, params, extra),
);
