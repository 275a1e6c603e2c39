// Connection bar: server, protocol and display settings.
import { oneLine } from "../../lib/visible.ts";
import { Button, Choice, badge, said } from "./parts.tsx";
import { locale, reconnect, state, theme, width } from "./store.ts";
import type { Theme } from "./store.ts";

const LOCALES = ["en-US", "de-DE", "ja-JP", "ar-EG"];
const WORDS: Readonly<Record<string, readonly [string, string]>> = {
  connecting: ["Connecting…", ""],
  ready: ["Connected", "good"],
  failed: ["Not connected", "bad"],
  ended: ["Server ended", "bad"],
  offline: ["Host is gone", "bad"],
};

function Who() {
  const { name, version, status, spoken, badges } = state.value;
  const [words, kind] = WORDS[status] ?? [status, "bad"];
  return (
    <div class="row">
      <h1>{said(name || "MCP test host", 60)}</h1>
      {version && (
        <span class="quiet">{said(version, 40)}</span>
      )}
      <span role="status">{badge(words, kind)}</span>
      {spoken && badge(`MCP ${spoken}`)}
      {badges.map(({ name: one, on }) => badge(`${on ? "✓" : "– no"} ${one}`, on ? "on" : "off"))}
    </div>
  );
}

const again = (revision: string) => reconnect(revision, state.value.configuration);

export function Bar() {
  const { target, revision, status, reason } = state.value;
  return (
    <header class="bar">
      <Who />
      <div class="row">
        <code class="quiet target" title={oneLine(target, 400)}>{said(target, 400)}</code>
        <Choice label="Revision" of={["2025-11-25", "2026-07-28"]} now={revision} choose={again} />
        <Choice label="Theme" of={["system", "light", "dark"]} now={theme.value} choose={(one) => (theme.value = one as Theme)} />
        <Choice label="Width" of={["320", "640", "full"]} now={width.value} choose={(one) => (width.value = one)} />
        <Choice label="Locale" of={[...new Set([locale.value, ...LOCALES])]} now={locale.value} choose={(one) => (locale.value = one)} />
        <Button class="small" disabled={status === "connecting" || status === "offline"} press={() => again(revision)}>
          {status === "ready" ? "Reconnect" : "Start again"}
        </Button>
      </div>
      {reason && (
        <p class="notice bad" role="alert">{said(reason, 1_000)}</p>
      )}
    </header>
  );
}
