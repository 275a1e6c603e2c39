// User interface of the staff dashboard.
import { each, h, when } from "../../lib/h.ts";
import type { Child } from "../../lib/h.ts";
import { memo, signal } from "../../lib/signals.ts";
import { oneLine } from "../../lib/visible.ts";
import { amount, commit, discard, failed, load, news, open, opened, plan, raise, say, staff, update } from "./office.ts";
import type { Person, Plan, Row } from "./office.ts";

const department = signal("");
const query = signal("");

const departments = memo(() => [...new Set((staff() ?? []).map((one) => one.department))].sort());
const rows = memo(() => {
  const words = query().toLowerCase();
  const fits = (one: Row): boolean => (department() === "" || one.department === department()) && `${one.name} ${one.title}`.toLowerCase().includes(words);
  return (staff() ?? []).filter(fits);
});
const payroll = memo(() => rows().reduce((sum, { salary }) => sum + salary, 0));

const name = (text: string): Node => h("bdi", {}, oneLine(text));
const value = (event: Event): string => (event.target as HTMLInputElement).value;
/** Focuses the element once it is in the document. */
function focused<N extends HTMLElement>(node: N): N {
  queueMicrotask(() => node.focus());
  return node;
}
function form(label: string, act: () => void, ...fields: Child[]): Node {
  const onsubmit = (event: Event): void => {
    event.preventDefault();
    act();
  };
  return h("form", { onsubmit, "aria-label": label }, ...fields);
}
const labelled = (label: string, field: Node): Node => h("label", {}, h("span", {}, label), field);

function filters(): Node {
  const chosen = h(
    "select",
    { onchange: (event: Event) => department(value(event)) },
    h("option", { value: "" }, "All"),
    each(departments, (one) => h("option", { value: one }, oneLine(one, 60))),
  );
  const search = h("input", { type: "search", oninput: (event: Event) => query(value(event)) });
  return h("div", { class: "row" }, labelled("Department", chosen), labelled("Search", search));
}

const drawn = (one: Row): Node =>
  h(
    "tr",
    {},
    h("th", { scope: "row" }, h("button", { type: "button", class: "link", onclick: () => void open(one.id) }, name(one.name))),
    h("td.wide", {}, name(one.title)),
    h("td", {}, name(one.department)),
    h("td", { class: "sum" }, amount(one.salary)),
  );

function table(): Node {
  const head = ["Name", "Title", "Department"].map((text) => h("th", { scope: "col", class: text === "Title" && "wide" }, text));
  const none = h("tr", {}, h("td", { colspan: 4, class: "quiet" }, () => (staff()?.length === 0 ? "Nobody works here yet." : "Nobody fits.")));
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Employees" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...head, h("th", { scope: "col", class: "sum" }, "Salary a year"))),
      h("tbody", {}, each(rows, drawn, none)),
      h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, () => `${rows().length} of ${staff()?.length ?? 0} people`), h("td.wide"), h("td"), h("td", { class: "sum" }, () => amount(payroll())))),
    ),
  );
}

function raises(): Node {
  const percent = h("input", { type: "number", min: 1, max: 25, step: 1, value: "3", required: true });
  const whose = (): string => (department() === "" ? "everybody" : oneLine(department(), 60));
  return form(
    "Raise salaries",
    () => void raise(department(), percent.valueAsNumber),
    h("h2", {}, "Raise salaries of ", h("bdi", {}, whose)),
    h("div", { class: "row" }, labelled("Percent, 1 to 25", percent), h("button", { type: "submit" }, "Preview")),
  );
}

function details(one: Person): Node {
  const text = (was: string): HTMLInputElement => h("input", { type: "text", value: was, maxlength: 80, required: true });
  const [title, where] = [text(one.title), text(one.department)];
  const salary = h("input", { type: "number", min: 0, max: 4_000_000_000, step: 1, value: String(one.salary), required: true });
  const heading = focused(h("h2", { tabindex: -1 }, name(one.name)));
  return h(
    "section",
    { class: "card", "aria-label": "Employee" },
    h("div", { class: "row" }, heading, h("button", { type: "button", class: "end", onclick: () => opened(undefined) }, "Close")),
    h("p", { class: "quiet" }, name(one.email), ", since ", name(one.since)),
    form(
      "Change this employee",
      () => void update(one, title.value.trim(), where.value.trim(), salary.valueAsNumber),
      h("div", { class: "row" }, labelled("Title", title), labelled("Department", where), labelled("Salary a year", salary), h("button", { type: "submit" }, "Preview")),
    ),
  );
}

function planned(made: Plan): Node {
  const waits = (): boolean => news()?.kind === "busy";
  const changes = made.changes.map(({ name: who, before, after }) =>
    h("tr", {}, h("th", { scope: "row" }, name(who)), h("td", { class: "sum was" }, name(before)), h("td", { class: "sum" }, name(after))),
  );
  const cost = `${made.cost < 0 ? "Less" : "More"} a year`;
  return h(
    "section",
    { class: "card", "aria-label": "Preview", "data-status": "planned" },
    focused(h("h2", { tabindex: -1 }, "Preview: ", name(made.intent))),
    h("p", { class: "quiet" }, "Nothing has changed yet. If you ask for it, this host asks you once more, outside of this page."),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Before and after" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, `${changes.length} changes`), h("th", { scope: "col", class: "sum" }, "Before"), h("th", { scope: "col", class: "sum" }, "After"))),
        h("tbody", {}, ...changes),
        h("tfoot", {}, h("tr", {}, h("th", { scope: "row", colspan: 2 }, cost), h("td", { class: "sum" }, amount(Math.abs(made.cost))))),
      ),
    ),
    h(
      "div",
      { class: "row" },
      h("button", { type: "button", class: "primary", disabled: waits, onclick: () => void commit(made) }, "Ask to make this change"),
      h("button", { type: "button", disabled: waits, onclick: discard }, "Discard"),
      () => news()?.kind === "unasked" && h("button", { type: "button", onclick: () => void say(made) }, "Put it into the chat"),
    ),
  );
}

const KINDS = { busy: "", done: "good", refused: "warn", unasked: "warn", failed: "bad" } as const;

export function app(): Node {
  const status = (): string => (failed() !== "" ? "failed" : staff() === undefined ? "loading" : staff()?.length === 0 ? "empty" : "ready");
  const told = (): Child => {
    const now = news();
    return now && h("p", { class: `notice ${KINDS[now.kind]}`, "data-kind": now.kind }, oneLine(now.text, 400));
  };
  const trouble = (text: string): Node =>
    h("div", { class: "notice bad", role: "alert" }, h("p", {}, oneLine(text, 400)), h("button", { type: "button", onclick: () => void load() }, "Try again"));
  return h(
    "main",
    { "data-status": status },
    h("div", { class: "row" }, h("h1", {}, "Staff"), h("p", { class: "quiet end" }, () => (staff() ? `Payroll ${amount(payroll())} a year` : "Loading…"))),
    when(failed, trouble),
    h("div", { role: "status" }, told),
    when(staff, () => h("div", { class: "parts" }, filters(), when(plan, planned), when(opened, details), table(), raises())),
  );
}
