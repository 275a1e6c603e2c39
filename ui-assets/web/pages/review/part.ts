// The name of a template or element in, the element out; and text in, the same as people may see it.
import { visible } from "../../lib/visible.ts";

/** The first element in it that the selector names. */
export function part<T extends HTMLElement>(of: ParentNode, selector: string): T {
  const found = of.querySelector<T>(selector);
  if (!found) throw new Error(`no \`${selector}\``);
  return found;
}

/** The element of that id. */
export const by = <T extends HTMLElement>(id: string): T => part<T>(document, `#${id}`);

/** A copy of what the template of that id holds. */
export const copy = (id: string): DocumentFragment => by<HTMLTemplateElement>(id).content.cloneNode(true) as DocumentFragment;

export function say(node: Element, text: string | number): void {
  node.textContent = visible(String(text));
}

/** Fills in how many lines came and went. */
export function counts(of: ParentNode, { added, removed }: { added: number; removed: number }): void {
  const plus = part(of, ".plus");
  if (plus.parentElement) plus.parentElement.hidden = added + removed === 0;
  say(plus, `+${added}`);
  say(part(of, ".minus"), `−${removed}`);
}

export const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));
