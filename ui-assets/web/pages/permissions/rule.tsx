// Form to add a rule, or the rules of a template, after a preview.
import { signal } from "@preact/signals-core";
import { createRef } from "preact";

import { isWide } from "../../components/permission-prompt/choice.ts";
import { Button, Code, Tick, Trouble } from "../../lib/ui.tsx";
import { oneLine } from "../../lib/visible.ts";
import { host } from "../../lib/console/api.ts";
import { CalmButton } from "../../lib/console/calm.tsx";
import { Choice, Select, SelectSource, sourceChoice } from "../../lib/console/parts.tsx";
import { sources } from "../../lib/console/state.ts";

const TIMES: Readonly<Record<string, readonly [words: string, lifetime: unknown]>> = {
  hour: ["for 1 hour", { for_ms: 3_600_000 }],
  uses: ["for 10 uses", { uses: 10 }],
  agent: ["until I revoke it", "agent"],
};

/** The rules that are about to be added, with the request that adds them. */
interface Preview {
  readonly holder: string;
  readonly words: string;
  readonly rules: readonly string[];
  readonly needsTick: boolean;
  readonly path: string;
  readonly body: object;
}

const isOpen = signal(false);
const source = sourceChoice();
const chosen = () => sources.value.find(({ run }) => run === source.value.value);
const template = new Choice(() => [["", "One rule"], ...(chosen()?.templates ?? []).map(({ name, about }) => [name, `${name}: ${about}`] as const)]);
const time = new Choice(() => Object.entries(TIMES).map(([value, [words]]) => [value, words]));
const pattern = signal("");
const agent = signal("");
/** The directories as typed; by default those of the host. */
const directories = signal<string | undefined>(undefined);
const shown = signal<Preview | undefined>(undefined);
const sure = signal(false);
const added = signal(false);
const error = signal<unknown>(undefined);
const patternInput = createRef<HTMLInputElement>();
/** Incremented when a change of the form invalidates the previewed rules. */
let turn = 0;

function forget(): void {
  turn += 1;
  shown.value = undefined;
  error.value = undefined;
  sure.value = added.value = false;
}
function renew(): void {
  directories.value = undefined;
  forget();
}

/** Opens the form for a rule of this verb. */
export function beginRule(verb: string): void {
  isOpen.value = true;
  template.picked.value = "";
  renew();
  pattern.value = `${verb}:file:`;
  setTimeout(() => patternInput.current?.focus());
}

const roots = (): string => directories.value ?? chosen()?.roots.join(" ") ?? "";

async function preview(): Promise<void> {
  forget();
  const now = turn;
  // Keep the previewed values, because the fields can change before the rules are added.
  const holder = agent.value.trim();
  const [words = "", lifetime] = TIMES[time.value.value] ?? [];
  const name = template.value.value;
  const rule = name ? "" : pattern.value.trim();
  const what = { run: source.value.value, ...(name ? { template: name, roots: roots().split(/\s+/).filter(Boolean) } : { pattern: rule }) };
  if (!holder || !(rule || name)) return void (error.value = "Name the agent and the rule.");
  try {
    const rules = rule ? [rule] : (await host<{ rules: readonly string[] }>("template-rules", what)).rules;
    if (now !== turn) return;
    const body = { ...what, holder: { agent: holder }, lifetime };
    shown.value = { holder, words, rules, needsTick: lifetime === "agent" || isWide(rules), path: rule ? "grant" : "grant-template", body };
  } catch (why) {
    if (now === turn) error.value = why;
  }
}

async function add({ path, body }: Preview): Promise<void> {
  try {
    await host(path, body);
    forget();
    added.value = true;
  } catch (why) {
    forget();
    error.value = why;
  }
}

const Field = ({ value, placeholder }: { readonly value: typeof pattern; readonly placeholder: string }) => (
  <input
    placeholder={placeholder}
    value={value.value}
    ref={value === pattern ? patternInput : null}
    onInput={({ currentTarget }) => {
      value.value = currentTarget.value;
      forget();
    }}
  />
);

const Shown = ({ preview }: { readonly preview: Preview }) => (
  <>
    <p>{`Agent ${oneLine(preview.holder)} may, ${preview.words}:`}</p>
    <ul>{preview.rules.map((rule) => <li><Code text={rule} /></li>)}</ul>
    {preview.needsTick && (
      <label><Tick checked={sure.value} change={(on) => (sure.value = on)} /> I understand this grants broad or permanent access.</label>
    )}
    <CalmButton disabled={preview.needsTick && !sure.value} press={() => void add(preview)}>Allow exactly this</CalmButton>
  </>
);

export function Rule() {
  return (
    <details class="card" open={isOpen.value} onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
      <summary>Allow without asking</summary>
      <div class="line">
        <label>What <Select choice={template} change={renew} /></label>
        {template.value.value ? (
          <label key="directories">
            Directories, with spaces between{" "}
            <input
              value={roots()}
              onInput={({ currentTarget }) => {
                directories.value = currentTarget.value;
                forget();
              }}
            />
          </label>
        ) : (
          <label key="rule">Rule <Field value={pattern} placeholder="write:file:/repo/docs" /></label>
        )}
        <label>Agent, by its path <Field value={agent} placeholder="main/tests" /></label>
        <label>How long <Select choice={time} change={forget} /></label>
        <SelectSource choice={source} change={renew} />
      </div>
      <div class="line"><Button press={() => void preview()}>Show the rules</Button></div>
      <div>
        {error.value !== undefined && <Trouble error={error.value} />}
        {shown.value && <Shown preview={shown.value} />}
        {added.value && <p role="status">Rule added.</p>}
      </div>
    </details>
  );
}
