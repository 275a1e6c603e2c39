// Messages of the test host. Text between backticks is code.
const MESSAGES = {
  "no-tool": ["notice", "Nothing to call."],
  "no-apps": ["notice", "The server has no page that opens by itself."],
  configuration: ["said", "Sent as `experimental.configuration` when connecting."],
  "no-configuration": ["notice", "The server has no configuration schema."],
  "no-handshake": ["notice warn", "This revision has no handshake, so nothing is sent."],
  policy: ["said", "Sent with each call as `_meta.policy`. It can only restrict."],
  "no-policy": ["notice", "The server does not support policies."],
  "no-reader": ["notice bad", "No tool is marked read-only, so none was called."],
  "under-policy": ["notice", "Calls use the policy of the tab Policy."],
  checks: ["said", "Runs `test_host check`: lists, schemas, denials, previews. Read-only if the server is honest."],
  "no-media": ["notice warn", "This cannot be shown."],
  "no-text": ["quiet", "Binary content, not shown."],
  unsaid: ["notice warn", "The server did not mark this as a preview; the call may have run."],
  denied: ["notice warn", "Not granted, so not called again."],
  refused: ["notice warn", "Denied: nothing was done."],
  "no-artifact": ["quiet", "No artifacts to compare."],
  "no-server": ["notice", "No server is connected."],
  meeting: ["notice", "Connecting…"],
} as const;
export type MessageName = keyof typeof MESSAGES;

export function Message({ name }: { readonly name: MessageName }) {
  const [look, words] = MESSAGES[name];
  return <p class={look}>{words.split("`").map((part, at) => (at % 2 ? <code>{part}</code> : part))}</p>;
}
