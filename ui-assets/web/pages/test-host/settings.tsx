// Forms for the server's configuration and for policies.
import { local, own } from "../../lib/component.ts";
import { Editor } from "./form.tsx";
import { Message } from "./messages.tsx";
import { Button, Live, Row } from "./parts.tsx";
import { policySchema } from "./schema.ts";
import { policy, reconnect, state } from "./store.ts";

export function Configuration() {
  const now = own(() => state.peek());
  const value = local<unknown>(now.configuration ?? {});
  const held = local(false);
  return (
    <article data-status={now.configuration ? "sent" : "unset"}>
      <h2>Configuration</h2>
      <Message name="configuration" />
      {!now.configSchema ? (
        <Message name="no-configuration" />
      ) : (
        <>
          <Editor name="configuration" schema={now.configSchema} value={value} held={held} />
          {now.revision !== "2025-11-25" && <Message name="no-handshake" />}
          <Row>
            <Button class="primary" disabled={held.value} press={() => reconnect(now.revision, value.value)}>Reconnect with it</Button>
            <Button press={() => reconnect(now.revision, undefined)}>Reconnect without</Button>
          </Row>
        </>
      )}
    </article>
  );
}

export function Policies() {
  const now = own(() => state.peek());
  const schema = own(() => policySchema(now.configSchema));
  const value = local<unknown>(policy.peek() ?? {});
  const held = local(false);
  return (
    <article>
      <h2>Policy</h2>
      <Message name="policy" />
      {!now.policy || !now.configSchema ? (
        <Message name="no-policy" />
      ) : (
        <>
          <Editor name="policy" schema={schema} value={value} held={held} />
          <Row>
            <Button class="primary" disabled={held.value} press={() => (policy.value = value.value)}>Use for calls</Button>
            <Button disabled={!policy.value} press={() => (policy.value = undefined)}>Stop using it</Button>
            <Live>{`Calls are made ${policy.value ? "under" : "without"} it.`}</Live>
          </Row>
        </>
      )}
    </article>
  );
}
