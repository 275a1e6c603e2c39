// An element in, the look that a page inside it should have out: the theme, and the variables that plain CSS sets on the element.

/** Every text that the pattern stands for: `a{b,c}` is `ab` and `ac`. */
function spelled(pattern: string): string[] {
  const [all, some = ""] = /\{(.*?)\}/.exec(pattern) ?? [];
  return all ? some.split(",").flatMap((one) => spelled(pattern.replace(all, one))) : [pattern];
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
].flatMap((pattern) => spelled(`--${pattern}`));

export interface Look {
  readonly theme: "light" | "dark";
  /** Those of MCP Apps; one that is not set is empty, which lets a page fall back and takes an earlier value away. */
  readonly variables: Readonly<Record<string, string>>;
  /** Those that start with `--mcp-`, as in the seed. */
  readonly ours: Readonly<Record<string, string>>;
}

const dark = matchMedia("(prefers-color-scheme: dark)");

export function lookOf(element: HTMLElement): Look {
  const style = getComputedStyle(element);
  const scheme = element.getAttribute("theme") ?? style.colorScheme;
  const read = (names: string[]): Record<string, string> =>
    Object.fromEntries(names.map((name) => [name, style.getPropertyValue(name)]));
  return {
    theme: scheme.includes("dark") && (dark.matches || !scheme.includes("light")) ? "dark" : "light",
    variables: read(VARIABLES),
    // Firefox cannot list them.
    ours: read([...(element.computedStyleMap?.().keys() ?? [])].filter((name) => name.startsWith("--mcp-"))),
  };
}

/** Calls `changed` when look or size may have changed, until `signal`. What is done in a style sheet or in another shadow tree is not seen. */
export function watchLook(element: HTMLElement, signal: AbortSignal, changed: () => void): void {
  const mutations = new MutationObserver(changed);
  mutations.observe(document, { subtree: true, attributeFilter: ["class", "style", "theme", "data-theme", "lang"] });
  const sizes = new ResizeObserver(changed);
  sizes.observe(element);
  dark.addEventListener("change", changed, { signal });
  signal.addEventListener("abort", () => {
    mutations.disconnect();
    sizes.disconnect();
  });
}
