// The schema of a configuration in, forms for it and for a policy out.
import { h, when } from "../../lib/h.ts";
import type { Child } from "../../lib/h.ts";
import { signal } from "../../lib/signals.ts";
import { request } from "./api.ts";
import { editor } from "./form.ts";
import { at, members, reason, texts } from "./json.ts";
import { about, badge, button, code, notice, quiet, row, said } from "./parts.ts";
import { policySchema } from "./schema.ts";
import { errorOf, policy, reconnect, state } from "./store.ts";

export function configuration(): Node {
  const now = state();
  const value = signal<unknown>(now.configuration ?? {});
  const held = signal(false);
  return h(
    "article",
    { "data-status": now.configuration === undefined ? "unset" : "sent" },
    h("h2", "Configuration"),
    about("What is set here is sent as ", code("experimental.configuration"), " when the server is met again."),
    now.configSchema === undefined
      ? notice("The server publishes no schema of its configuration.")
      : [
          editor("configuration", now.configSchema, value, held),
          now.revision !== "2025-11-25" && notice("This revision has no handshake, so nothing is configured in it.", "warn"),
          row(
            button("Reconnect with it", () => reconnect(now.revision, value()), "primary", { disabled: held }),
            button("Reconnect without", () => reconnect(now.revision, undefined)),
          ),
        ],
  );
}

interface Tried {
  readonly policy: string;
  readonly refused: boolean;
  readonly told: string;
}

/** What no policy may do: reach more, set what is set at the start alone, or say what nobody understands. */
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
    { "data-status": all.every((one) => one.refused) ? "refused" : "widened" },
    all.map(({ policy: wide, refused, told }) =>
      h("li", row(refused ? badge("refused", "good") : badge("NOT REFUSED", "bad"), code(wide, 200)), quiet(said(told))),
    ),
  );

/** Calls something that only reads under policies that would widen. */
async function widened(own: unknown): Promise<Child> {
  const reads = state().tools.filter((tool) => tool.readOnly);
  const tool = reads.find((one) => texts(one.inputSchema, "required").length === 0) ?? reads[0];
  if (tool === undefined) return notice("No tool says that it only reads, so none is called.", "bad");
  const made = widening(own).map(async (wide): Promise<Tried> => {
    const response = await request("tools/call", { name: tool.name, arguments: {}, _meta: { policy: wide } });
    const told = errorOf(response);
    return { policy: JSON.stringify(wide), refused: told !== undefined, told: told ?? "the call was made" };
  });
  return tries(await Promise.all(made));
}

export function policies(): Node {
  const now = state();
  const value = signal<unknown>(policy() ?? {});
  const held = signal(false);
  const tried = signal<Child>(undefined);
  const used = () => `Calls are made ${policy() === undefined ? "without" : "under"} it.`;
  const must = () => widened(value()).then(tried, (error: unknown) => tried(notice(reason(error), "bad")));
  return h(
    "article",
    h("h2", "Policy"),
    about(
      ...["It goes along with each call as ", code("_meta.policy"), " and can only take away. "],
      "What is set at the start alone is not offered.",
    ),
    !now.policy || now.configSchema === undefined
      ? notice("The server does not say that it knows policies.")
      : [
          editor("policy", policySchema(now.configSchema), value, held),
          row(
            button("Use for calls", () => policy(value()), "primary", { disabled: held }),
            button("Stop using it", () => policy(undefined), "", { disabled: () => policy() === undefined }),
            button("Try to widen: must fail", must, "", { disabled: held }),
            h("span.quiet", { "aria-live": "polite" }, used),
          ),
          when(tried, (all) => all),
        ],
  );
}
