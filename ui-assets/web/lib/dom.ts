// DOM helpers: element creation, trusted click and change handlers, and timers. Text is inserted as text nodes only.

type Tag = keyof HTMLElementTagNameMap;
export type Child = Node | string | number | false | undefined;
type Attributes = Readonly<Record<string, string | number | boolean | undefined>>;

/**
 * Creates an element from `name` or `name.class`; attributes are optional. `true` sets an attribute without a value;
 * `false` and `undefined` omit it.
 */
export function el<T extends Tag>(name: T | `${T}.${string}`, ...rest: readonly [Attributes, ...Child[]] | readonly Child[]): HTMLElementTagNameMap[T] {
  const [tag, look] = name.split(".") as [T, string?];
  const made = document.createElement(tag);
  if (look) made.className = look;
  for (const one of rest as readonly (Child | Attributes)[]) {
    if (typeof one === "string" || one instanceof Node) made.append(one);
    else for (const [key, value] of Object.entries(one || {})) if ((value ?? false) !== false) made.setAttribute(key, value === true ? "" : (value as string));
  }
  return made;
}

/** Calls `act` on trusted clicks only, so that scripts cannot press the button. */
export function onPress(button: HTMLButtonElement, act: (button: HTMLButtonElement) => void): HTMLButtonElement {
  button.type = "button";
  button.onclick = ({ isTrusted, currentTarget }) => {
    if (isTrusted) act(currentTarget as HTMLButtonElement);
  };
  return button;
}

/**
 * Calls `act` when a person changes the checkbox. It listens for clicks because `change` is trusted even after a
 * scripted click.
 */
export function onTick(tick: HTMLInputElement, act: (on: boolean) => void): HTMLInputElement {
  tick.onclick = (event) => {
    if (event.isTrusted) act((event.currentTarget as HTMLInputElement).checked);
    else event.preventDefault();
  };
  return tick;
}

/**
 * Milliseconds for which a control must be unchanged before a press counts, so that a press aimed at the previous
 * content has no effect.
 */
export const CALM = 700;

/** Sets the text only if it differs, so that screen readers do not repeat it. */
export function say(node: Node, words: string): void {
  if (node.textContent !== words) node.textContent = words;
}

/** The remaining time until `at`, formatted as `1:05`; empty once it has passed. */
export function left(at: number): string {
  const seconds = Math.ceil((at - Date.now()) / 1000);
  return seconds > 0 ? `${Math.floor(seconds / 60)}:${`0${seconds % 60}`.slice(-2)}` : "";
}

export const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));
