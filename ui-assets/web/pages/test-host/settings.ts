// Forms for the server's configuration and for policies.
import { h, when } from "../../lib/h.ts";
import type { Child } from "../../lib/h.ts";
import { signal } from "../../lib/signals.ts";
import { errorOf, request } from "./api.ts";
import { editor } from "./form.ts";
import { at, members, reason, texts } from "./json.ts";
import { badge, button, code, live, notice, quiet, row, said, told } from "./parts.ts";
import { policySchema } from "./schema.ts";
import { policy, reconnect, state } from "./store.ts";

export function configuration(): Node {
  const now = state();
  const value = signal<unknown>(now.configuration ?? {});
  const held = signal(false);
  return h(
    "article",
    { "data-status": now.configuration ? "sent" : "unset" },
    h("h2", "Configuration"),
    told("configuration"),
    !now.configSchema
      ? told("no-configuration")
      : [
          editor("configuration", now.configSchema, value, held),
          now.revision !== "2025-11-25" && told("no-handshake"),
          row(
            button("Reconnect with it", () => reconnect(now.revision, value()), "primary", { disabled: held }),
            button("Reconnect without", () => reconnect(now.revision, undefined)),
          ),
        ],
  );
}

interface Tried {
  readonly policy: string;
  readonly error: string | undefined;
}

/** Policies that must be rejected: wider access, startup-only settings, unknown fields and invalid values. */
function widening(own: unknown): unknown[] {
  const known = members(state().configSchema, "properties");
  const roots = "roots" in known ? [{ ...members(own), roots: [{ path: "/" }] }] : [];
  const fixed = Object.keys(known).filter((name) => at(known[name], "scope") === "configuration");
  const start = fixed.slice(0, 1).map((name) => ({ [name]: at(known[name], "default") ?? true }));
  return [...roots, ...start, { test_host_no_such_field: true }, "everything"];
}

const tries = (all: readonly Tried[]): Node =>
  h(
    "ul.plain tried",
    { "data-status": all.every((one) => one.error) ? "refused" : "widened" },
    all.map(({ policy: wide, error }) =>
      h("li", row(error ? badge("refused", "good") : badge("NOT REFUSED", "bad"), code(wide, 200)), quiet(said(error ?? "the call was made"))),
    ),
  );

/** Calls a read-only tool under each of these policies. */
async function widened(own: unknown): Promise<Child> {
  const reads = state().tools.filter((tool) => tool.readOnly);
  const tool = reads.find((one) => texts(one.inputSchema, "required").length === 0) ?? reads[0];
  if (!tool) return told("no-reader");
  const made = widening(own).map(async (wide): Promise<Tried> => {
    const response = await request("tools/call", { name: tool.name, arguments: {}, _meta: { policy: wide } });
    return { policy: JSON.stringify(wide), error: errorOf(response) };
  });
  return tries(await Promise.all(made));
}

export function policies(): Node {
  const now = state();
  const value = signal<unknown>(policy() ?? {});
  const held = signal(false);
  const tried = signal<Child>(undefined);
  const used = () => `Calls are made ${policy() ? "under" : "without"} it.`;
  const must = () => widened(value()).then(tried, (error: unknown) => tried(notice(reason(error), "bad")));
  return h(
    "article",
    h("h2", "Policy"),
    told("policy"),
    !now.policy || !now.configSchema
      ? told("no-policy")
      : [
          editor("policy", policySchema(now.configSchema), value, held),
          row(
            button("Use for calls", () => policy(value()), "primary", { disabled: held }),
            button("Stop using it", () => policy(undefined), "", { disabled: () => !policy() }),
            button("Try to widen: must fail", must, "", { disabled: held }),
            live(used),
          ),
          when(tried, (all) => all),
        ],
  );
}
