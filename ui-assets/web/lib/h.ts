// Names, properties and children in, elements out; a function among them is followed. Text goes in as text nodes alone.
import { effect, memo, onEnd, owned, untracked } from "./signals.ts";

export type Child = Node | string | number | boolean | undefined | readonly Child[] | (() => Child);
type Plain = string | number | boolean | undefined;
type Property = Plain | (() => Plain) | ((event: never) => unknown);
type Tag = keyof HTMLElementTagNameMap;
type Made<N> = N extends `${infer T extends Tag}.${string}` ? HTMLElementTagNameMap[T] : N extends Tag ? HTMLElementTagNameMap[N] : never;

/** The nodes that a child comes to now. */
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

/** Sets an attribute; `undefined` and `false` take it away. */
export function set(node: HTMLElement, name: string, value: Plain): void {
  // A page's policy forbids the attribute `style`, not the property.
  if (/^(value|checked|selected|style)$/.test(name)) (node as unknown as Record<string, Plain>)[name] = value;
  else if (value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : String(value));
}

type Properties = Readonly<Record<string, Property>>;

/** Makes an element, as `name` or `name.class`. A property that begins with `on` is a listener; any other that is a function is followed. */
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

/** Shows `then` of a value while there is one, made anew for each other value. */
export function when<T>(value: () => T, then: (value: NonNullable<T>) => Child, otherwise?: () => Child): Child {
  const now = memo(value);
  return () => {
    const known = now();
    return untracked(() => (known ? then(known) : otherwise?.()));
  };
}

/** Shows each item; what was made of one stays as long as the item does. */
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
