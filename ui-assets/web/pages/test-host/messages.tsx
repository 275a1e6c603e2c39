// Messages of the test host. Text between backticks is code.
const MESSAGES = {
  "no-tool": ["notice", "Select a tool."],
  "no-apps": ["notice", "The server lists no views."],
  configuration: ["said", "Sent as `experimental.configuration` when you reconnect."],
  "no-configuration": ["notice", "The server has no configuration schema."],
  "no-handshake": ["notice warn", "This revision has no handshake, so this is not sent."],
  policy: ["said", "Sent with each call as `_meta.policy`. It can only restrict, and has no settings for the start of the server."],
  "no-policy": ["notice", "The server does not declare support for policies."],
  "under-policy": ["notice", "The policy of the tab Policy applies."],
  checks: ["said", "The checks of `bailiwick check`. They change nothing if the annotations of the tools are correct."],
  "preview-only": ["notice", "This allows the preview only, which changes nothing."],
  "preview-and-call": ["notice warn", "The preview needs this, too, so there is no diff yet. If you allow this, the call is made exactly as previewed, without another question."],
  "no-media": ["notice warn", "This media type cannot be shown."],
  "no-text": ["quiet", "Binary content, not shown."],
  unsaid: ["notice warn", "The result is not marked as a preview: the call may have been made."],
  denied: ["notice warn", "Not granted, so the call was not repeated."],
  refused: ["notice warn", "Denied: nothing was done."],
  "no-artifact": ["quiet", "Neither result has artifacts."],
  "no-server": ["notice", "Not connected to a server."],
} as const;
export type MessageName = keyof typeof MESSAGES;

export function Message({ name }: { readonly name: MessageName }) {
  const [look, words] = MESSAGES[name];
  return <p class={look}>{words.split("`").map((part, at) => (at % 2 ? <code>{part}</code> : part))}</p>;
}
