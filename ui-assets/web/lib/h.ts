// Reactive DOM rendering: functions as properties or children are re-evaluated when their signals change. Text is
// inserted as text nodes only.
import { effect, memo, onEnd, owned, untracked } from "./signals.ts";

export type Child = Node | string | number | boolean | undefined | readonly Child[] | (() => Child);
type Plain = string | number | boolean | undefined;
type Property = Plain | (() => Plain) | ((event: never) => unknown);
type Tag = keyof HTMLElementTagNameMap;
type Made<N> = N extends `${infer T extends Tag}.${string}` ? HTMLElementTagNameMap[T] : N extends Tag ? HTMLElementTagNameMap[N] : never;

/** The current DOM nodes of a child. */
const nodes = (child: Child): ChildNode[] => {
  if (typeof child === "function") return nodes(child());
  if (child instanceof Node) return [child as ChildNode];
  if (typeof child === "object") return child.flatMap(nodes);
  return child === undefined || typeof child === "boolean" ? [] : [new Text(String(child))];
};

function insert(parent: Element, child: Child): void {
  if (Array.isArray(child)) for (const one of child) insert(parent, one);
  else if (typeof child === "function") {
    const end = new Text();
    parent.append(end);
    let shown: ChildNode[] = [];
    effect(() => {
      const next = nodes(child());
      for (const node of shown) if (!next.includes(node)) node.remove();
      let before: ChildNode = end;
      for (const node of next.toReversed()) {
        if (node.nextSibling !== before) before.before(node);
        before = node;
      }
      shown = next;
    });
  } else parent.append(...nodes(child));
}

/** Sets an attribute; `undefined` and `false` remove it. */
export function set(node: HTMLElement, name: string, value: Plain): void {
  // A page's CSP forbids the `style` attribute, but not the `style` property.
  if (/^(value|checked|selected|style)$/.test(name)) (node as unknown as Record<string, Plain>)[name] = value;
  else if (value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : String(value));
}

type Properties = Readonly<Record<string, Property>>;

/**
 * Creates an element from `name` or `name.class`. A property that starts with `on` is an event listener; any other
 * function is reactive.
 */
export function h<N extends Tag | `${Tag}.${string}`>(name: N, properties: Properties, ...children: Child[]): Made<N>;
export function h<N extends Tag | `${Tag}.${string}`>(name: N, ...children: Child[]): Made<N>;
export function h(name: string, ...children: (Child | Properties)[]): HTMLElement {
  const [tag = "", style] = name.split(".");
  const node = document.createElement(tag);
  set(node, "class", style);
  const [first] = children;
  const properties = first?.constructor === Object ? (children.shift() as Properties) : {};
  insert(node, children as Child[]);
  for (const [key, value] of Object.entries(properties)) {
    if (typeof value !== "function") set(node, key, value);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value as EventListener);
    else effect(() => set(node, key, (value as () => Plain)()));
  }
  return node;
}

/** Renders `then(value)` while the value is truthy, and again when the value changes. */
export function when<T>(value: () => T, then: (value: NonNullable<T>) => Child, otherwise?: () => Child): Child {
  const now = memo(value);
  return () => {
    const known = now();
    return untracked(() => (known ? then(known) : otherwise?.()));
  };
}

/** Renders a list; the nodes of an item are kept as long as the item is in the list. */
export function each<T>(items: () => readonly T[], draw: (item: T) => Node, none?: Child): Child {
  let made = new Map<T, readonly [Node, () => void]>();
  onEnd(() => made.forEach(([, end]) => end()));
  return () => {
    const next = new Map(items().map((item) => [item, made.get(item) ?? untracked(() => owned(() => draw(item)))]));
    for (const [item, [, end]] of made) if (!next.has(item)) end();
    made = next;
    return next.size > 0 ? [...next.values()].map(([node]) => node) : none;
  };
}
