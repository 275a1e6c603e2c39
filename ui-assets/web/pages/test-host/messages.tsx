// Messages of the test host. Text between backticks is code.
const MESSAGES = {
  "no-tool": ["notice", "There is nothing to call."],
  "no-apps": ["notice", "The server offers no page that can be opened by itself."],
  configuration: ["said", "What is set here is sent as `experimental.configuration` when the server is met again."],
  "no-configuration": ["notice", "The server publishes no schema of its configuration."],
  "no-handshake": ["notice warn", "This revision has no handshake, so nothing is configured in it."],
  policy: ["said", "It goes along with each call as `_meta.policy` and can only take away. What is set at the start alone is not offered."],
  "no-policy": ["notice", "The server does not say that it knows policies."],
  "no-reader": ["notice bad", "No tool says that it only reads, so none is called."],
  "under-policy": ["notice", "Calls are made under the policy of the tab Policy."],
  checks: ["said", "What `test_host check` tries: lists, schemas, refusals, previews. Nothing is changed, if the server keeps its word."],
  "no-media": ["notice warn", "This cannot be shown."],
  "no-text": ["quiet", "Bytes, which are not shown."],
  unsaid: ["notice warn", "The server does not say that this is a preview: the call may have been made."],
  denied: ["notice warn", "Not granted, so it was not made again."],
  refused: ["notice warn", "Denied: nothing was done."],
  "no-artifact": ["quiet", "Neither left an artifact behind."],
  "no-server": ["notice", "There is no server to try."],
  meeting: ["notice", "The server is being met…"],
} as const;
export type MessageName = keyof typeof MESSAGES;

export function Message({ name }: { readonly name: MessageName }) {
  const [look, words] = MESSAGES[name];
  return <p class={look}>{words.split("`").map((part, at) => (at % 2 ? <code>{part}</code> : part))}</p>;
}
