// User interface of the staff dashboard.
import { computed, signal } from "@preact/signals-core";
import { createRef } from "preact";
import type { ComponentChildren, RefObject } from "preact";

import { onMount, own } from "../../lib/component.ts";
import { Name } from "../../lib/ui.tsx";
import { oneLine } from "../../lib/visible.ts";
import { amount, commit, discard, failed, load, news, open, opened, plan, raise, say, staff, update } from "./office.ts";
import type { Person, Plan, Row } from "./office.ts";

const department = signal("");
const query = signal("");

const departments = computed(() => [...new Set((staff.value ?? []).map((one) => one.department))].sort());
const rows = computed(() => {
  const words = query.value.toLowerCase();
  const fits = (one: Row): boolean => (department.value === "" || one.department === department.value) && `${one.name} ${one.title}`.toLowerCase().includes(words);
  return (staff.value ?? []).filter(fits);
});
const payroll = computed(() => rows.value.reduce((sum, { salary }) => sum + salary, 0));

/** An element that gets the focus once it is in the document. */
function focused(): RefObject<HTMLHeadingElement | null> {
  const ref = own(createRef<HTMLHeadingElement>);
  onMount(() => ref.current?.focus());
  return ref;
}

interface FormProps {
  readonly label: string;
  readonly act: () => void;
  readonly children: ComponentChildren;
}

const Form = ({ label, act, children }: FormProps) => (
  <form
    aria-label={label}
    onSubmit={(event) => {
      event.preventDefault();
      act();
    }}
  >
    {children}
  </form>
);

const Labelled = ({ label, children }: { readonly label: string; readonly children: ComponentChildren }) => (
  <label>
    <span>{label}</span>
    {children}
  </label>
);

const Filters = () => (
  <div class="row">
    <Labelled label="Department">
      <select value={department.value} onChange={({ currentTarget }) => (department.value = currentTarget.value)}>
        <option value="">All</option>
        {departments.value.map((one) => (
          <option key={one} value={one}>{oneLine(one, 60)}</option>
        ))}
      </select>
    </Labelled>
    <Labelled label="Search"><input type="search" onInput={({ currentTarget }) => (query.value = currentTarget.value)} /></Labelled>
  </div>
);

const PersonRow = ({ one }: { readonly one: Row }) => (
  <tr>
    <th scope="row"><button type="button" class="link" onClick={() => void open(one.id)}><Name text={one.name} /></button></th>
    <td class="wide"><Name text={one.title} /></td>
    <td><Name text={one.department} /></td>
    <td class="sum">{amount(one.salary)}</td>
  </tr>
);

const Table = () => (
  <div class="scroll" tabIndex={0} role="region" aria-label="Employees">
    <table>
      <thead>
        <tr>
          <th scope="col">Name</th>
          <th scope="col" class="wide">Title</th>
          <th scope="col">Department</th>
          <th scope="col" class="sum">Salary a year</th>
        </tr>
      </thead>
      <tbody>
        {rows.value.map((one) => <PersonRow key={one.id} one={one} />)}
        {rows.value.length === 0 && (
          <tr><td colSpan={4} class="quiet">{staff.value?.length === 0 ? "Nobody works here yet." : "Nobody fits."}</td></tr>
        )}
      </tbody>
      <tfoot>
        <tr>
          <th scope="row">{`${rows.value.length} of ${staff.value?.length ?? 0} people`}</th>
          <td class="wide" />
          <td />
          <td class="sum">{amount(payroll.value)}</td>
        </tr>
      </tfoot>
    </table>
  </div>
);

function Raises() {
  const percent = own(createRef<HTMLInputElement>);
  return (
    <Form label="Raise salaries" act={() => void raise(department.value, percent.current?.valueAsNumber ?? 0)}>
      <h2>Raise salaries of <bdi>{department.value === "" ? "everybody" : oneLine(department.value, 60)}</bdi></h2>
      <div class="row">
        <Labelled label="Percent, 1 to 25">
          <input ref={percent} type="number" min={1} max={25} step={1} defaultValue="3" required />
        </Labelled>
        <button type="submit">Preview</button>
      </div>
    </Form>
  );
}

function Details({ one }: { readonly one: Person }) {
  const [title, where, salary] = own(() => [createRef<HTMLInputElement>(), createRef<HTMLInputElement>(), createRef<HTMLInputElement>()] as const);
  const textOf = (ref: typeof title): string => ref.current?.value.trim() ?? "";
  return (
    <section class="card" aria-label="Employee">
      <div class="row">
        <h2 tabIndex={-1} ref={focused()}><Name text={one.name} /></h2>
        <button type="button" class="end" onClick={() => (opened.value = undefined)}>Close</button>
      </div>
      <p class="quiet"><Name text={one.email} />, since <Name text={one.since} /></p>
      <Form label="Change this employee" act={() => void update(one, textOf(title), textOf(where), salary.current?.valueAsNumber ?? 0)}>
        <div class="row">
          <Labelled label="Title"><input ref={title} type="text" defaultValue={one.title} maxlength={80} required /></Labelled>
          <Labelled label="Department"><input ref={where} type="text" defaultValue={one.department} maxlength={80} required /></Labelled>
          <Labelled label="Salary a year">
            <input ref={salary} type="number" min={0} max={4_000_000_000} step={1} defaultValue={String(one.salary)} required />
          </Labelled>
          <button type="submit">Preview</button>
        </div>
      </Form>
    </section>
  );
}

function Planned({ made }: { readonly made: Plan }) {
  const isBusy = news.value?.kind === "busy";
  return (
    <section class="card" aria-label="Preview" data-status="planned">
      <h2 tabIndex={-1} ref={focused()}>Preview: <Name text={made.intent} /></h2>
      <p class="quiet">Nothing has changed yet. If you ask for it, this host asks you once more, outside of this page.</p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Before and after">
        <table>
          <thead>
            <tr>
              <th scope="col">{`${made.changes.length} changes`}</th>
              <th scope="col" class="sum">Before</th>
              <th scope="col" class="sum">After</th>
            </tr>
          </thead>
          <tbody>
            {made.changes.map(({ name, before, after }) => (
              <tr key={name}>
                <th scope="row"><Name text={name} /></th>
                <td class="sum was"><Name text={before} /></td>
                <td class="sum"><Name text={after} /></td>
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row" colSpan={2}>{`${made.cost < 0 ? "Less" : "More"} a year`}</th>
              <td class="sum">{amount(Math.abs(made.cost))}</td>
            </tr>
          </tfoot>
        </table>
      </div>
      <div class="row">
        <button type="button" class="primary" disabled={isBusy} onClick={() => void commit(made)}>Ask to make this change</button>
        <button type="button" disabled={isBusy} onClick={discard}>Discard</button>
        {news.value?.kind === "unasked" && (
          <button type="button" onClick={() => void say(made)}>Put it into the chat</button>
        )}
      </div>
    </section>
  );
}

const KINDS = { busy: "", done: "good", refused: "warn", unasked: "warn", failed: "bad" } as const;

export function App() {
  const now = news.value;
  const status = failed.value !== "" ? "failed" : staff.value === undefined ? "loading" : staff.value.length === 0 ? "empty" : "ready";
  return (
    <main data-status={status}>
      <div class="row">
        <h1>Staff</h1>
        <p class="quiet end">{staff.value ? `Payroll ${amount(payroll.value)} a year` : "Loading…"}</p>
      </div>
      {failed.value && (
        <div class="notice bad" role="alert">
          <p>{oneLine(failed.value, 400)}</p>
          <button type="button" onClick={() => void load()}>Try again</button>
        </div>
      )}
      <div role="status">
        {now && (
          <p class={`notice ${KINDS[now.kind]}`} data-kind={now.kind}>{oneLine(now.text, 400)}</p>
        )}
      </div>
      {staff.value && (
        <div class="parts">
          <Filters />
          {plan.value && <Planned key={plan.value} made={plan.value} />}
          {opened.value && <Details key={opened.value} one={opened.value} />}
          <Table />
          <Raises />
        </div>
      )}
    </main>
  );
}
