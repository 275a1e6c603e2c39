// Names, attributes and children in, elements out; text goes in as text nodes alone.

type Child = Node | string | undefined;
type Attributes = Readonly<Record<string, string | number | boolean | undefined>>;

/** Makes an element. `true` sets an attribute without a value; `false` and `undefined` leave it out. */
export function el<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== undefined));
  return made;
}

/** Calls `act` when a person clicks, not when a script does. */
export function onPress(button: HTMLButtonElement, act: () => void): HTMLButtonElement {
  button.addEventListener("click", (event) => {
    if (event.isTrusted) act();
  });
  return button;
}

/** Calls `act` when a person ticks, not when a script does: the `change` of a press by a script counts as trusted. */
export function onTick(tick: HTMLInputElement, act: () => void): HTMLInputElement {
  tick.addEventListener("click", (event) => {
    if (event.isTrusted) act();
    else event.preventDefault();
  });
  return tick;
}
