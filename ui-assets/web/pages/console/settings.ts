// Permissions tab: a switch for each verb, and a list of all grants.
import { el, left } from "../../lib/dom.ts";
import { oneLine } from "../../lib/visible.ts";
import { host } from "./api.ts";
import type { Grant, State } from "./api.ts";
import { giving } from "./giving.ts";
import { button, clock, code, draw, failed, line, name, offer, select, tick } from "./shown.ts";

const VERBS = { read: "Read", write: "Change", execute: "Run" };

/** Renders the permissions into `place`; returns a function that updates them. */
export function settings(place: HTMLElement): (state: State) => void {
  let state: State | undefined;
  const chosen = new Set<string>();
  /** The verb whose grants are about to be revoked, awaiting confirmation. */
  let sure = "";
  const main = el("div");
  const wrong = el("div");
  const rule = giving();
  const whose = select(() => show());
  place.append(line(el("label", "Whose ", whose)), wrong, main, rule.place);

  const act = (doing: Promise<unknown>): void => {
    draw(wrong);
    doing.catch(failed(wrong));
  };
  const revoke = (grants: Iterable<string>): void =>
    act(
      host<{ grants: readonly { message?: string }[] }>("revoke", { grants: [...grants] }).then((came) => {
        const [first, ...more] = came.grants.flatMap(({ message }) => message ?? []);
        if (first) throw new Error(`${more.length + 1} could not be taken back: ${first}`);
      }),
    );

  const narrow = (grant: Grant, pressed: HTMLElement): void => {
    const [pattern, uses, minutes, only] = pressed.parentElement?.querySelectorAll("input") ?? [];
    const change = {
      grant: grant.grant,
      ...(pattern?.value !== grant.pattern && { pattern: pattern?.value }),
      ...(uses?.value && { uses: +uses.value }),
      ...(minutes?.value && { for_ms: +minutes.value * 60_000 }),
      holder_only: only?.checked,
    };
    act(host("narrow", change));
  };

  const row = (grant: Grant): HTMLElement => {
    const { grant: which, pattern, uses_left: uses, expires_at: end, used } = grant;
    const choose = (on: boolean): void => {
      if (on) chosen.add(which);
      else chosen.delete(which);
      show();
    };
    const number = (words: string): HTMLElement => el("label", words, el("input", { type: "number", min: 1 }));
    return el(
      "li",
      { "data-key": which },
      line(
        tick("", choose, { checked: chosen.has(which), "aria-label": `Choose ${oneLine(pattern)}` }),
        code(pattern),
        name(grant.held, 120),
        grant.descendants && el("span.badge", "sub-agents too"),
        uses !== null && el("span.badge", `${uses} use${uses === 1 ? "" : "s"} left`),
        end !== null && el("span.badge", left(end) ? `ends in ${left(end)}` : "ended"),
        el(used ? "span.quiet" : "span.badge", used ? `used ${used}×${grant.used_at === null ? "" : `, last ${clock(grant.used_at)}`}` : "never used"),
        button("Revoke", () => revoke([which])),
      ),
      el(
        "details",
        el("summary", "Narrow"),
        line(
          el("input", { value: pattern, "aria-label": "Remaining" }),
          number("Uses left "),
          number("Minutes left "),
          el("label", el("input", { type: "checkbox", disabled: !grant.descendants }), " Not its sub-agents"),
          button("Narrow to this", (pressed) => narrow(grant, pressed)),
        ),
      ),
    );
  };

  const verb = ([kind, words]: readonly [string, string], shown: readonly Grant[]): HTMLElement => {
    const of = shown.filter((grant) => !grant.verb || grant.verb === kind);
    const count = of.length;
    if (!count && sure === kind) sure = "";
    const asks = sure === kind && `Revoke ${count}?`;
    const toggle = button(asks || (count ? "On" : "Off"), () => {
      if (asks) revoke(of.map((grant) => grant.grant));
      else if (!count) return rule.begin(kind);
      sure = asks ? "" : kind;
      show();
    }, { role: "switch", "aria-checked": `${count > 0}`, "aria-label": `${words} without asking${asks ? `: ${asks}` : ""}` });
    return el(
      "div.card verb",
      { "data-key": kind },
      line(toggle, el("h3", words), el("span.quiet", count ? `${count} ${count === 1 ? "rule" : "rules"}` : "asks each time, or is refused")),
      count && el("details", el("summary", "Rules"), el("ul.plain", ...of.map(row))),
    );
  };

  const show = (): void => {
    if (!state) return;
    const { grants, refusals, omitted } = state;
    const { value } = whose;
    const shown = grants.filter((grant) => !value || grant.whose.includes(value));
    for (const one of chosen) if (!shown.some(({ grant }) => grant === one)) chosen.delete(one);
    draw(
      main,
      ...Object.entries(VERBS).map((one) => verb(one, shown)),
      omitted.grants && el("p.notice", `${omitted.grants} more rules are not listed. Revoke some to see them.`),
      chosen.size && button(`Revoke ${chosen.size} chosen`, () => revoke(chosen)),
      refusals.length && el("h2", "Denied for the rest of a session"),
      el(
        "ul.plain",
        ...refusals.map(({ run, refusal, agent, refused }) =>
          el("li", { "data-key": `${run}${refusal}` }, line(name(agent), name(refused), button("Ask again", () => act(host("ask-again", { run, refusal }))))),
        ),
      ),
      omitted.refusals && el("p.notice", `${omitted.refusals} more refusals are not listed.`),
    );
  };
  setInterval(() => {
    if (place.isConnected) show();
  }, 1000);

  return (now) => {
    state = now;
    rule.show(now);
    offer(whose, ["Everybody", ...new Set(now.grants.flatMap((grant) => grant.whose))].map((one, at) => [at ? one : "", one]));
    show();
  };
}
