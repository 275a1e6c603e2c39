// Solid's rendering calls in, plain DOM calls out: its own compiler target parses templates as HTML, which no page here does.
import type { JSX } from "solid-js";
import { createRenderer } from "solid-js/universal";

export const {
  effect,
  memo,
  createComponent,
  createElement,
  createTextNode,
  insertNode,
  insert,
  spread,
  setProp,
  mergeProps,
  use,
  render,
} = createRenderer<Node>({
  createElement: (name) => document.createElement(name),
  createTextNode: (text) => document.createTextNode(text),
  replaceText: (node, text) => {
    node.nodeValue = text;
  },
  isTextNode: (node) => node.nodeType === Node.TEXT_NODE,
  insertNode: (parent, node, anchor) => {
    parent.insertBefore(node, anchor ?? null);
  },
  removeNode: (parent, node) => {
    parent.removeChild(node);
  },
  getParentNode: (node) => node.parentNode ?? undefined,
  getFirstChild: (node) => node.firstChild ?? undefined,
  getNextSibling: (node) => node.nextSibling ?? undefined,
  setProperty: (node, name, value, previous) => {
    const element = node as HTMLElement;
    if (name.startsWith("on")) {
      const event = name.slice(2).toLowerCase();
      if (previous) element.removeEventListener(event, previous as unknown as EventListener);
      if (value) element.addEventListener(event, value as unknown as EventListener);
    } else if (name === "value" || name === "checked" || name === "indeterminate") {
      Reflect.set(element, name, value);
    } else if (value === undefined || value === null || value === false) {
      element.removeAttribute(name);
    } else {
      element.setAttribute(name === "className" ? "class" : name, value === true ? "" : String(value));
    }
  },
});

/** Shows what `code` makes in `node`; the answer takes it away again. */
export const mount = render as (code: () => JSX.Element, node: Node) => () => void;
