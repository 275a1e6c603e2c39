// Template and text helpers of the review page.
import { visible } from "../../lib/visible.ts";

/** The first descendant that matches the selector; throws if there is none. */
export function part<T extends HTMLElement>(of: ParentNode, selector: string): T {
  const found = of.querySelector<T>(selector);
  if (!found) throw new Error(`no \`${selector}\``);
  return found;
}

/** The element with the id. */
export const by = <T extends HTMLElement>(id: string): T => part<T>(document, `#${id}`);

/** A copy of the template with the id. */
export const copy = (id: string): DocumentFragment => by<HTMLTemplateElement>(id).content.cloneNode(true) as DocumentFragment;

export function say(node: Element, text: string | number): void {
  node.textContent = visible(String(text));
}

/** Fills in the numbers of added and removed lines. */
export function counts(of: ParentNode, { added, removed }: { added: number; removed: number }): void {
  const plus = part(of, ".plus");
  if (plus.parentElement) plus.parentElement.hidden = added + removed === 0;
  say(plus, `+${added}`);
  say(part(of, ".minus"), `−${removed}`);
}

export const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));
