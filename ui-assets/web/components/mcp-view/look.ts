// An element in, the look that a page inside it should have out: the theme, and the variables that plain CSS sets on the element.
import type { HostContext } from "../../bridge/types.ts";

/** Every variable that the pattern stands for: `a{b,c}` is `--ab` and `--ac`. */
function spelled(pattern: string): string[] {
  const [all, some = ""] = /\{(.*?)\}/.exec(pattern) ?? [];
  return all ? some.split(",").flatMap((one) => spelled(pattern.replace(all, one))) : [`--${pattern}`];
}

/** The 76 variables of MCP Apps. */
export const VARIABLES = [
  "color-{background,text,border,ring}-{primary,secondary,inverse,info,danger,success,warning}",
  "color-{background,text,border}-{tertiary,ghost,disabled}",
  "font-{sans,mono}",
  "font-weight-{normal,medium,semibold,bold}",
  "font-{text,heading}-{xs,sm,md,lg}-{size,line-height}",
  "font-heading-{xl,2xl,3xl}-{size,line-height}",
  "border-radius-{xs,sm,md,lg,xl,full}",
  "border-width-regular",
  "shadow-{hairline,sm,md,lg}",
].flatMap(spelled);

export type Variables = Readonly<Record<string, string>>;

const dark = matchMedia("(prefers-color-scheme: dark)");

/** What of the look a page is told. */
export const lookOf = (element: HTMLElement): HostContext => {
  const style = getComputedStyle(element);
  const scheme = element.getAttribute("theme") ?? style.colorScheme;
  const read = (names: string[]): Variables =>
    Object.fromEntries(names.map((name) => [name, style.getPropertyValue(name)]));
  return {
    theme: scheme.includes("dark") && (dark.matches || !scheme.includes("light")) ? "dark" : "light",
    // One that is not set is empty, which lets a page fall back and takes an earlier value away.
    styles: { variables: read(VARIABLES) },
    // Those of our own; Firefox cannot list them.
    "dev.bailiwick/variables": read([...(element.computedStyleMap?.().keys() ?? [])].filter((name) => name.startsWith("--mcp-"))),
  };
};

/** Calls `changed` when look or size may have changed, until `signal`. What is done in a style sheet or in another shadow tree is not seen. */
export function watchLook(element: HTMLElement, signal: AbortSignal, changed: () => void): void {
  const mutations = new MutationObserver(changed);
  mutations.observe(document, { subtree: true, attributeFilter: ["class", "style", "theme", "data-theme", "lang"] });
  const sizes = new ResizeObserver(changed);
  sizes.observe(element);
  dark.addEventListener("change", changed, { signal });
  // In place of what waited for the page to start: it has.
  signal.onabort = () => {
    mutations.disconnect();
    sizes.disconnect();
  };
}
