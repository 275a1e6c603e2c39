// Reads the theme and CSS variables of an element for the page inside it.
import type { HostContext } from "../../bridge/types.ts";

/** Expands braces in a variable pattern: `a{b,c}` is `--ab` and `--ac`. */
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

/** The theme and style part of the host context. */
export const lookOf = (element: HTMLElement): HostContext => {
  const style = getComputedStyle(element);
  const scheme = element.getAttribute("theme") ?? style.colorScheme;
  const read = (names: string[]): Variables =>
    Object.fromEntries(names.map((name) => [name, style.getPropertyValue(name)]));
  return {
    theme: scheme.includes("dark") && (dark.matches || !scheme.includes("light")) ? "dark" : "light",
    // Unset variables are sent as empty strings, so that the page uses its fallback and drops an earlier value.
    styles: { variables: read(VARIABLES) },
    // Custom `--mcp-*` variables; Firefox cannot list them.
    "dev.bailiwick/variables": read([...(element.computedStyleMap?.().keys() ?? [])].filter((name) => name.startsWith("--mcp-"))),
  };
};

/**
 * Calls `changed` when theme, styles or size may have changed, until `signal` aborts. Changes in style sheets or in
 * other shadow trees are not detected.
 */
export function watchLook(element: HTMLElement, signal: AbortSignal, changed: () => void): void {
  const mutations = new MutationObserver(changed);
  mutations.observe(document, { subtree: true, attributeFilter: ["class", "style", "theme", "data-theme", "lang"] });
  const sizes = new ResizeObserver(changed);
  sizes.observe(element);
  dark.addEventListener("change", changed, { signal });
  signal.onabort = () => {
    mutations.disconnect();
    sizes.disconnect();
  };
}
