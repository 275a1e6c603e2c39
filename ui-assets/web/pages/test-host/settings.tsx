// Forms for the server's configuration and for policies.
import { local, own } from "../../lib/component.ts";
import { errorOf, request } from "./api.ts";
import { Editor } from "./form.tsx";
import { at, members, reason, stringify, texts } from "./json.ts";
import { Message } from "./messages.tsx";
import { Button, Live, Quiet, Row, badge, code, notice, said } from "./parts.tsx";
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

interface Tried {
  readonly policy: string;
  readonly error: string | undefined;
}

/** Policies that must be rejected: wider access, startup-only settings, unknown fields and invalid values. */
function widening(own: unknown): unknown[] {
  const known = members(state.peek().configSchema, "properties");
  const roots = "roots" in known ? [{ ...members(own), roots: [{ path: "/" }] }] : [];
  const fixed = Object.keys(known).filter((name) => at(known[name], "scope") === "configuration");
  const start = fixed.slice(0, 1).map((name) => ({ [name]: at(known[name], "default") ?? true }));
  return [...roots, ...start, { test_host_no_such_field: true }, "everything"];
}

/** Calls a read-only tool under each of these policies; `undefined` if there is no such tool. */
async function widened(own: unknown): Promise<readonly Tried[] | undefined> {
  const reads = state.peek().tools.filter((tool) => tool.readOnly);
  const tool = reads.find((one) => texts(one.inputSchema, "required").length === 0) ?? reads[0];
  if (!tool) return undefined;
  const made = widening(own).map(async (wide): Promise<Tried> => {
    const response = await request("tools/call", { name: tool.name, arguments: {}, _meta: { policy: wide } });
    return { policy: stringify(wide), error: errorOf(response) };
  });
  return Promise.all(made);
}

const Tries = ({ all }: { readonly all: readonly Tried[] }) => (
  <ul class="plain tried" data-status={all.every((one) => one.error) ? "refused" : "widened"}>
    {all.map(({ policy: wide, error }) => (
      <li>
        <Row>
          {error ? badge("refused", "good") : badge("NOT REFUSED", "bad")}
          {code(wide, 200)}
        </Row>
        <Quiet>{said(error ?? "the call was made")}</Quiet>
      </li>
    ))}
  </ul>
);

export function Policies() {
  const now = own(() => state.peek());
  const schema = own(() => policySchema(now.configSchema));
  const value = local<unknown>(policy.peek() ?? {});
  const held = local(false);
  const tried = local<{ readonly all: readonly Tried[] | undefined } | { readonly fault: string } | undefined>(undefined);
  const must = (): Promise<void> =>
    widened(value.value).then(
      (all) => void (tried.value = { all }),
      (error: unknown) => void (tried.value = { fault: reason(error) }),
    );
  const shown = tried.value;
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
            <Button disabled={held.value} press={must}>Try to widen: must fail</Button>
            <Live>{`Calls are made with${policy.value ? "" : "out"} it.`}</Live>
          </Row>
          {shown && ("fault" in shown ? notice(shown.fault, "bad") : shown.all ? <Tries all={shown.all} /> : <Message name="no-reader" />)}
        </>
      )}
    </article>
  );
}
