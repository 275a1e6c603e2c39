// Icon elements, drawn by the style sheet.
import { h } from "../../lib/h.ts";

export type Sign = "directory" | "file" | "link" | "special" | "lock" | "back" | "again" | "find";

export const icon = (name: Sign): HTMLElement => h(`i.icon ${name}`);
