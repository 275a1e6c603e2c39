// Connection bar: server, protocol and display settings.
import { h, when } from "../../lib/h.ts";
import { oneLine } from "../../lib/visible.ts";
import type { State } from "./model.ts";
import { badge, button, choice, said } from "./parts.ts";
import { locale, reconnect, theme, width, state } from "./store.ts";

const LOCALES = ["en-US", "de-DE", "ja-JP", "ar-EG"];
const WORDS: Readonly<Record<string, readonly [string, string]>> = {
  connecting: ["Connecting…", ""],
  ready: ["Connected", "good"],
  failed: ["Not connected", "bad"],
  ended: ["Server ended", "bad"],
  offline: ["Host is gone", "bad"],
};

const who = ({ name, version, status, spoken, badges }: State) => [
  h("h1", said(name || "MCP test host", 60)),
  version && h("span.quiet", said(version, 40)),
  h("span", { role: "status" }, badge(...(WORDS[status] ?? [status, "bad"]))),
  spoken && badge(`MCP ${spoken}`),
  badges.map(({ name: told, on }) => badge(`${on ? "✓" : "– no"} ${told}`, on ? "on" : "off")),
];

const again = (revision: string) => reconnect(revision, state().configuration);

export const bar = (): Node =>
  h(
    "header.bar",
    h("div.row", () => who(state())),
    h(
      "div.row",
      h("code.quiet target", { title: () => oneLine(state().target, 400) }, () => said(state().target, 400)),
      choice("Revision", ["2025-11-25", "2026-07-28"], () => state().revision, again),
      choice("Theme", ["system", "light", "dark"], theme, theme),
      choice("Width", ["320", "640", "full"], width, width),
      choice("Locale", [...new Set([locale(), ...LOCALES])], locale, locale),
      button(() => (state().status === "ready" ? "Reconnect" : "Start again"), () => again(state().revision), "small", {
        disabled: () => state().status === "connecting" || state().status === "offline",
      }),
    ),
    when(
      () => state().reason,
      (why) => h("p.notice bad", { role: "alert" }, said(why, 1_000)),
    ),
  );
