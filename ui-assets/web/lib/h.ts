// Names, properties and children in, elements out; a function among them is followed. Text goes in as text nodes alone.
import { apart, effect, memo, untrack } from "./signals.ts";

export type Child = Node | string | number | boolean | undefined | readonly Child[] | (() => Child);
type Property = string | number | boolean | undefined | ((event: Event) => unknown) | (() => unknown);

/** The nodes that a child comes to now. */
function nodes(child: Child): Node[] {
  if (typeof child === "function") return nodes(child());
  if (child instanceof Node) return [child];
  if (typeof child === "object") return child.flatMap(nodes);
  return child === undefined || typeof child === "boolean" ? [] : [document.createTextNode(String(child))];
}

function insert(parent: Node, child: Child): void {
  if (Array.isArray(child)) for (const one of child) insert(parent, one);
  else if (typeof child === "function") {
    const end = parent.appendChild(document.createTextNode(""));
    let shown: Node[] = [];
    effect(() => {
      const next = nodes(child());
      for (const node of shown) if (!next.includes(node)) parent.removeChild(node);
      let before: Node = end;
      for (const node of next.toReversed()) {
        if (node.nextSibling !== before) parent.insertBefore(node, before);
        before = node;
      }
      shown = next;
    });
  } else for (const node of nodes(child)) parent.appendChild(node);
}

function set(element: HTMLElement, name: string, value: unknown): void {
  if (name === "value" || name === "checked") Reflect.set(element, name, value);
  else if (value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/** Makes an element. A property that begins with `on` is a listener; any other that is a function is followed. */
export function h<K extends keyof HTMLElementTagNameMap>(
  name: K,
  properties: Readonly<Record<string, Property>>,
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  insert(element, children);
  for (const [key, value] of Object.entries(properties)) {
    if (typeof value !== "function") set(element, key, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else effect(() => set(element, key, (value as () => unknown)()));
  }
  return element;
}

/** Shows `then` of a value while there is one, made anew for each other value. */
export function when<T>(value: () => T, then: (value: NonNullable<T>) => Child, otherwise?: () => Child): Child {
  const now = memo(value);
  return () => {
    const known = now();
    return untrack(() => (known ? then(known) : otherwise?.()));
  };
}

/** Shows each item; what was made of one stays as long as the item does. */
export function each<T>(items: () => readonly T[], draw: (item: T) => Node, none?: Child): Child {
  let made = new Map<T, Node>();
  return () => {
    const next = new Map(items().map((item) => [item, made.get(item) ?? apart(() => draw(item))]));
    made = next;
    return next.size > 0 ? [...next.values()] : none;
  };
}
