// The state that the host reports.
import { computed, signal } from "@preact/signals-core";

import type { State } from "./api.ts";

export const state = signal<State>();
export const sources = /* @__PURE__ */ computed<State["sources"]>(() => state.value?.sources ?? []);
/** Updated once a second, for the times that are left. */
export const second = signal(0);
setInterval(() => (second.value += 1), 1000);
