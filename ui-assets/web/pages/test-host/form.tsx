// Builds a form for a JSON Schema. Each edit calls `change`; empty fields are omitted.
import type { Signal } from "@preact/signals-core";
import type { ComponentChild } from "preact";

import { local, own } from "../../lib/component.ts";
import { oneLine } from "../../lib/visible.ts";
import { at, isFields, list, members, parsed, pretty, stringify } from "./json.ts";
import { Button, Quiet, Row, badge, notice, said, typing } from "./parts.tsx";
import { fieldOf, initial } from "./schema.ts";
import type { Field as Schema } from "./schema.ts";

interface FieldProps {
  readonly schema: unknown;
  readonly root: unknown;
  readonly name: string;
  readonly required: boolean;
  /** Initial value; later edits are kept in the form. */
  readonly value: unknown;
  readonly change: (value: unknown) => void;
}

interface InputProps extends FieldProps {
  readonly field: Schema;
  readonly ids: Readonly<Record<string, string>>;
}

/** Names of arguments that usually hold long text. */
const LONG = /text|content|body|patch|code/i;

function Text({ name, required, value, change, ids }: InputProps) {
  const all = { ...ids, spellcheck: false, defaultValue: typeof value === "string" ? value : "", onInput: typing((now) => change(now || required ? now : undefined)) };
  return LONG.test(name) ? <textarea {...all} rows={3} /> : <input {...all} type="text" autocomplete="off" />;
}

const Numeric = ({ value, change, field, ids }: InputProps) => (
  <input
    {...ids}
    type="number"
    step={[field.schema["type"]].flat().includes("integer") ? "1" : "any"}
    defaultValue={typeof value === "number" ? String(value) : ""}
    onInput={typing((now) => change(now ? Number(now) : undefined))}
  />
);

function OneOf({ required, value, change, field: { choices }, ids }: InputProps) {
  const begin = choices.findIndex((one) => stringify(one.value) === stringify(value));
  return (
    <select {...ids} onChange={typing((now) => change(now ? choices[Number(now)]?.value : undefined))}>
      {(!required || begin < 0) && <option value="">not set</option>}
      {choices.map(({ label }, index) => (
        <option value={index} selected={index === begin}>{oneLine(label, 80)}</option>
      ))}
    </select>
  );
}

function Json({ value, change, ids }: InputProps) {
  const fault = local("");
  const onInput = typing((now) => {
    const [read, why] = now.trim() ? parsed(now) : [undefined, ""];
    fault.value = why;
    if (!why) change(read);
  });
  return (
    <>
      <textarea {...ids} class="code" rows={3} spellcheck={false} placeholder="JSON" defaultValue={value === undefined ? "" : pretty(value)} onInput={onInput} />
      {fault.value && notice(fault.value, "bad")}
    </>
  );
}

let made = 0;

function Items({ root, name, required, value, change, field: { schema }, ids }: InputProps) {
  const item = (begin: unknown) => ({ id: (made += 1), value: begin });
  const items = local(list(value).map(item));
  const tell = (): void => {
    const filled = items.value.flatMap((one) => (one.value === undefined ? [] : [one.value]));
    change(filled.length === 0 && !required ? undefined : filled);
  };
  const put = (next: typeof items.value): void => {
    items.value = next;
    tell();
  };
  const inner = schema["items"];
  const told = oneLine(name, 60);
  return (
    <div class="items" {...ids} role="group">
      {items.value.map((one, index) => (
        <div class="item" key={one.id}>
          <Field
            schema={inner}
            root={root}
            name={`${name} ${index + 1}`}
            required
            value={one.value}
            change={(now) => {
              one.value = now;
              tell();
            }}
          />
          <Button class="small" press={() => put(items.value.filter((other) => other !== one))}>
            Remove<span class="visually-hidden">{` one of ${told}`}</span>
          </Button>
        </div>
      ))}
      <Button class="small" press={() => put([...items.value, item(initial(inner, root))])}>
        Add<span class="visually-hidden">{` to ${told}`}</span>
      </Button>
    </div>
  );
}

const INPUTS: Readonly<Record<Exclude<Schema["kind"], "object">, (props: InputProps) => ComponentChild>> = { text: Text, number: Numeric, choice: OneOf, json: Json, list: Items };

/** A field with its label and description. */
function Field(props: FieldProps) {
  const { schema, root, name, required } = props;
  const field = fieldOf(schema, root);
  const id = own(() => `field-${(made += 1)}`);
  const limits = ["scope", "audience"].map((key) => at(schema, key)).filter((limit) => limit !== undefined && limit !== "any");
  const label = (
    <>
      {said(name, 80)}
      {required && <Quiet> required</Quiet>}
      {limits.map((limit) => badge(String(limit)))}
    </>
  );
  const about = (
    <small class="quiet about" id={`${id}-about`}>{said(field.description)}</small>
  );
  if (field.kind === "object") {
    return (
      <fieldset class="field">
        <legend>{label}</legend>
        {about}
        <Fields {...props} />
      </fieldset>
    );
  }
  const Input = INPUTS[field.kind];
  const ids = { id, "aria-describedby": `${id}-about`, "aria-labelledby": `${id}-name` };
  return (
    <div class="field">
      {field.kind === "list" ? <div id={`${id}-name`}>{label}</div> : <label id={`${id}-name`} for={id}>{label}</label>}
      <Input {...props} field={field} ids={ids} />
      {about}
    </div>
  );
}

/** The fields of an object schema. */
export function Fields({ schema, root, required, value, change }: Omit<FieldProps, "name">) {
  const now = own(() => new Map(Object.entries(members(value))));
  const { schema: resolved } = fieldOf(schema, root);
  const wanted = list(resolved["required"]);
  const edit = (name: string, next: unknown): void => {
    if (next === undefined) now.delete(name);
    else now.set(name, next);
    change(now.size === 0 && !required ? undefined : Object.fromEntries(now));
  };
  return (
    <>
      {Object.entries(members(resolved["properties"])).map(([name, inner]) => (
        <Field key={name} schema={inner} root={root} name={name} required={wanted.includes(name)} value={now.get(name)} change={(next) => edit(name, next)} />
      ))}
    </>
  );
}

interface EditorProps {
  readonly name: string;
  readonly schema: unknown;
  readonly value: Signal<unknown>;
  /** Whether the JSON is invalid. */
  readonly held: Signal<boolean>;
}

/** A form, or a JSON editor. */
export function Editor({ name, schema, value, held }: EditorProps) {
  const raw = local(false);
  const fault = local("");
  const onInput = typing((now) => {
    const [read, no] = parsed(now);
    const why = no || (isFields(read) ? "" : "it must be an object");
    fault.value = why;
    held.value = why !== "";
    if (!why) value.value = read;
  });
  return (
    <>
      <Row>
        <Button class="small" on={!raw.value} disabled={fault.value !== ""} press={() => (raw.value = false)}>Form</Button>
        <Button class="small" on={raw.value} press={() => (raw.value = true)}>JSON</Button>
      </Row>
      {raw.value ? (
        <textarea key="json" aria-label={`The ${name} as JSON`} class="code" rows={8} spellcheck={false} defaultValue={pretty(value.peek())} onInput={onInput} />
      ) : (
        <form key="form" class="fields" onSubmit={(event) => event.preventDefault()}>
          <Fields schema={schema} root={schema} required value={value.peek()} change={(now) => (value.value = now ?? {})} />
        </form>
      )}
      {fault.value && notice(fault.value, "bad")}
    </>
  );
}
