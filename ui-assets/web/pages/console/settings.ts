// What is granted in, two levels of it out: what may be done at all, and each rule with what a person can do about it.
import { el, onTick } from "../../lib/dom.ts";
import { anything, list, object } from "../../lib/parse.ts";
import { oneLine } from "../../lib/visible.ts";
import { host } from "./api.ts";
import type { Grant, State } from "./api.ts";
import { giving } from "./giving.ts";
import { badge, button, clock, code, failed, line, offer, quiet, renew, select } from "./shown.ts";

const VERBS = [
  ["read", "Read"],
  ["write", "Change"],
  ["execute", "Run"],
] as const;

const revoked = object({ grants: list(object({ message: (value: unknown) => value })) });

function heldBy({ holder }: Grant): string {
  const { agent, worker, session } = holder;
  if (agent !== undefined) return `agent ${agent}`;
  return session ? `worker ${session.worker} in session ${session.session}` : `worker ${worker}`;
}

const leftOf = (uses: number): string => `${uses} use${uses === 1 ? "" : "s"} left`;

function usedOf({ used, used_at }: Grant): string {
  return used === 0 ? "never used" : `used ${used}×${used_at === undefined ? "" : `, last ${clock(used_at)}`}`;
}

/** What of grants their use does not change. */
const lasting = (grants: readonly Grant[]): unknown =>
  grants.map(({ used: _used, used_at: _at, uses_left, ...rest }) => ({ ...rest, counted: uses_left !== undefined }));

/** Whose grants are meant, as `KIND:NAME`. */
function isOf(grant: Grant, whose: string): boolean {
  const [kind, ...rest] = whose.split(":");
  const name = rest.join(":");
  if (kind === "agent") return grant.holder.agent === name;
  if (kind === "session") return grant.holder.session?.session === name;
  if (kind === "server") return server(grant) === name;
  return true;
}

const server = ({ pattern }: Grant): string => (pattern.split(":")[1] === "mcp" ? (pattern.split(":")[2] ?? "") : "");

export function settings(): { place: HTMLElement; show(state: State): void } {
  let grants: readonly Grant[] = [];
  const chosen = new Set<string>();
  const open = new Set<string>();
  const verbs = el("div", { tabindex: -1 });
  const refused = el("div", { tabindex: -1 });
  const wrong = el("div", {});
  const rule = giving();
  const whose = select("Whose", [["", "Everybody"]], () => update());
  const place = el("section", { tabindex: -1, "aria-label": "Permissions" }, line(el("label", {}, "Whose ", whose)), wrong, verbs, refused, rule.place);

  const act = (doing: Promise<unknown>): void => {
    wrong.replaceChildren();
    doing.catch(failed(wrong));
  };
  const revoke = (names: readonly string[]): void =>
    act(
      host(revoked, "revoke", { grants: names }).then((came) => {
        const failed = came.grants.filter((one) => one.message !== undefined);
        if (failed.length > 0) throw new Error(`${failed.length} could not be taken back: ${String(failed[0]?.message)}`);
      }),
    );

  const narrowing = (grant: Grant): HTMLElement => {
    const pattern = el("input", { value: grant.pattern, "aria-label": "What is left", "data-key": `p${grant.grant}` });
    const uses = el("input", { type: "number", min: 1, "aria-label": "Uses left" });
    const minutes = el("input", { type: "number", min: 1, "aria-label": "Minutes left" });
    const only = el("input", { type: "checkbox", disabled: !grant.descendants });
    const go = (): void => {
      const change = {
        grant: grant.grant,
        ...(pattern.value !== grant.pattern && { pattern: pattern.value }),
        ...(uses.value !== "" && { uses: Number(uses.value) }),
        ...(minutes.value !== "" && { for_ms: Number(minutes.value) * 60_000 }),
        holder_only: only.checked,
      };
      act(host(anything, "narrow", change));
    };
    return el(
      "details",
      {},
      el("summary", { "data-key": `n${grant.grant}` }, "Narrow"),
      line(pattern, el("label", {}, "Uses ", uses), el("label", {}, "Minutes ", minutes), el("label", {}, only, " Not its sub-agents"), button("Leave only this", go, `l${grant.grant}`)),
    );
  };

  const row = (grant: Grant): HTMLElement => {
    const tick = el("input", { type: "checkbox", checked: chosen.has(grant.grant), "aria-label": `Choose ${oneLine(grant.pattern)}`, "data-key": `t${grant.grant}` });
    onTick(tick, () => {
      if (tick.checked) chosen.add(grant.grant);
      else chosen.delete(grant.grant);
      update();
    });
    return el(
      "li",
      {},
      line(
        tick,
        code(grant.pattern),
        el("bdi", {}, oneLine(heldBy(grant), 120)),
        grant.descendants ? badge("sub-agents too") : undefined,
        grant.uses_left === undefined ? undefined : el("span", { class: "badge", "data-left": grant.grant }, leftOf(grant.uses_left)),
        grant.expires_at === undefined ? undefined : el("span", { class: "badge", "data-ends": grant.expires_at }),
        el("span", { class: grant.used === 0 ? "badge" : "quiet", "data-used": grant.grant }, usedOf(grant)),
        button("Revoke", () => revoke([grant.grant]), `r${grant.grant}`),
      ),
      narrowing(grant),
    );
  };

  const verb = (name: string, words: string, shown: readonly Grant[]): HTMLElement => {
    const of = shown.filter((grant) => grant.verb === undefined || grant.verb === name);
    const on = of.length > 0;
    const toggle = button(on ? "On" : "Off", () => {
      if (on && toggle.dataset["sure"] === undefined) {
        toggle.dataset["sure"] = "";
        toggle.textContent = `Take back ${of.length}?`;
      } else if (on) revoke(of.map((grant) => grant.grant));
      else rule.begin(name);
    }, `v${name}`);
    toggle.setAttribute("role", "switch");
    toggle.setAttribute("aria-checked", String(on));
    toggle.setAttribute("aria-label", `${words} without asking`);
    const count = on ? `${of.length} ${of.length === 1 ? "rule" : "rules"}` : "asks each time, or is refused";
    const more = el("details", { open: open.has(name) }, el("summary", { "data-key": `d${name}` }, "Rules"), el("ul", { class: "plain" }, ...of.map(row)));
    more.addEventListener("toggle", () => (more.open ? open.add(name) : open.delete(name)));
    return el("div", { class: "card verb" }, line(toggle, el("h3", {}, words), quiet(count)), on ? more : undefined);
  };

  const update = (): void => {
    const shown = grants.filter((grant) => isOf(grant, whose.value));
    for (const name of chosen) if (!shown.some((grant) => grant.grant === name)) chosen.delete(name);
    const several = button(`Revoke ${chosen.size} chosen`, () => revoke([...chosen]));
    renew(verbs, ...VERBS.map(([name, words]) => verb(name, words, shown)), chosen.size > 0 ? several : undefined);
    tick();
  };

  const tick = (): void => {
    for (const one of verbs.querySelectorAll<HTMLElement>("[data-ends]")) {
      const left = Math.max(0, Math.round((Number(one.dataset["ends"]) - Date.now()) / 1000));
      one.textContent = left > 0 ? `ends in ${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}` : "ended";
    }
  };
  setInterval(tick, 1000);

  const count = (): void => {
    for (const grant of grants) {
      const shown = (what: string): NodeListOf<HTMLElement> => verbs.querySelectorAll(`[data-${what}="${CSS.escape(grant.grant)}"]`);
      for (const one of shown("used")) {
        one.className = grant.used === 0 ? "badge" : "quiet";
        one.textContent = usedOf(grant);
      }
      for (const one of shown("left")) one.textContent = leftOf(grant.uses_left ?? 0);
    }
  };

  let seen = "";
  return {
    place,
    show(state) {
      rule.show(state);
      grants = state.grants;
      // Where only uses were counted no control is made anew: a person may be about to press it.
      const now = JSON.stringify([lasting(grants), state.refusals]);
      if (now === seen) return count();
      seen = now;
      const names = (kind: string, of: (grant: Grant) => string | undefined): (readonly [string, string])[] =>
        [...new Set(grants.map(of))].flatMap((name) => (name ? [[`${kind}:${name}`, `${kind} ${name}`] as const] : []));
      offer(whose, [
        ["", "Everybody"],
        ...names("agent", ({ holder }) => holder.agent),
        ...names("session", ({ holder }) => holder.session?.session),
        ...names("server", server),
      ]);
      const lifted = state.refusals.map(({ run, refusal, agent, needs }) =>
        el("li", {}, line(el("bdi", {}, oneLine(agent)), ...needs.map(code), button("Ask again", () => act(host(anything, "ask-again", { run, refusal })), `a${run}${refusal}`))),
      );
      renew(refused, ...(lifted.length > 0 ? [el("h2", {}, "Refused for the rest of a session"), el("ul", { class: "plain" }, ...lifted)] : []));
      update();
    },
  };
}

