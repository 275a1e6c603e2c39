// Names, attributes and children in, elements out; text goes in as text nodes alone.

type Tag = keyof HTMLElementTagNameMap;
export type Child = Node | string | number | false | undefined;
type Attributes = Readonly<Record<string, string | number | boolean | undefined>>;

/**
 * Makes an element, as `name` or `name.class`; attributes may be left out. `true` sets an attribute without a value;
 * `false` and `undefined` leave it out.
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

/** A button that calls `act` when a person clicks, not when a script does. */
export function onPress(button: HTMLButtonElement, act: (button: HTMLButtonElement) => void): HTMLButtonElement {
  button.type = "button";
  button.onclick = ({ isTrusted, currentTarget }) => {
    if (isTrusted) act(currentTarget as HTMLButtonElement);
  };
  return button;
}

/** Calls `act` when a person ticks, not when a script does: the `change` of a press by a script counts as trusted. */
export function onTick(tick: HTMLInputElement, act: (on: boolean) => void): HTMLInputElement {
  tick.onclick = (event) => {
    if (event.isTrusted) act((event.currentTarget as HTMLInputElement).checked);
    else event.preventDefault();
  };
  return tick;
}

/** How long what can be pressed stands still, in milliseconds, before it counts: what a person aimed at before is not meant. */
export const CALM = 700;

/** Writes what is not written there yet: what is read out is not to be read out again. */
export function say(node: Node, words: string): void {
  if (node.textContent !== words) node.textContent = words;
}

/** The time until `at`, as `1:05`; nothing once it is over. */
export function left(at: number): string {
  const seconds = Math.ceil((at - Date.now()) / 1000);
  return seconds > 0 ? `${Math.floor(seconds / 60)}:${`0${seconds % 60}`.slice(-2)}` : "";
}

export const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));
