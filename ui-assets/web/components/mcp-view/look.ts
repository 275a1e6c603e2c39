// An element in, the look that a page inside it should have out: the theme, and the variables that plain CSS sets on the element.

const tones = "primary secondary tertiary inverse ghost info danger success warning disabled";
const sizes = "xs sm md lg xl 2xl 3xl";
const some = sizes.slice(0, 11);

/** The 76 variables of MCP Apps. */
export const VARIABLES = Object.entries({
  "color-background-*": tones,
  "color-text-*": tones,
  "color-border-*": tones,
  "color-ring-*": tones.replace(/ (tertiary|ghost|disabled)/g, ""),
  "font-*": "sans mono",
  "font-weight-*": "normal medium semibold bold",
  "font-text-*-size": some,
  "font-text-*-line-height": some,
  "font-heading-*-size": sizes,
  "font-heading-*-line-height": sizes,
  "border-radius-*": `${some} xl full`,
  "border-width-*": "regular",
  "shadow-*": "hairline sm md lg",
}).flatMap(([name, all]) => all.split(" ").map((one) => `--${name.replace("*", one)}`));

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
