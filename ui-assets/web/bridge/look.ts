// Applies the host's theme and style variables to this document, and reports the document's size to the host.
import type { HostContext } from "./types.ts";

export const root = document.documentElement;
let set: string[] = [];
let css: string | undefined;
const fonts = new CSSStyleSheet();

/**
 * Applies theme, style variables, fonts and locale to the root element. It uses the CSSOM, which the page's Content
 * Security Policy does not restrict.
 */
export function look({ theme, styles, locale, ...rest }: HostContext): void {
  if (theme === "light" || theme === "dark") root.style.colorScheme = root.dataset.theme = theme;
  for (const name of set) root.style.removeProperty(name);
  set = [];
  for (const [name, value] of Object.entries({ ...styles?.variables, ...Object(rest["dev.bailiwick/variables"]) })) {
    if (!name.startsWith("--") || typeof value !== "string") continue;
    root.style.setProperty(name, value);
    set.push(name);
  }
  if (typeof styles?.css?.fonts === "string" && styles.css.fonts !== css) {
    fonts.replaceSync((css = styles.css.fonts));
    document.adoptedStyleSheets = [fonts];
  }
  // The host may refine the page's language (`en` to `en-GB`), but not replace it.
  if (typeof locale === "string" && locale.split("-")[0] === root.lang.split("-")[0]) root.lang = locale;
}

/** Reports the size of the document now and whenever it changes. */
export function watchSize(report: (size: { width: number; height: number }) => void): () => void {
  let last = "";
  let waiting = false;
  const measure = (): void => {
    waiting = false;
    const before = root.style.height;
    // Measure the height of the content instead of the frame.
    root.style.height = "max-content";
    const height = Math.ceil(root.getBoundingClientRect().height);
    root.style.height = before;
    const width = Math.ceil(innerWidth);
    const now = `${width} ${height}`;
    if (now !== last) report({ width, height });
    last = now;
  };
  const observer = new ResizeObserver(() => {
    if (!waiting) requestAnimationFrame(measure);
    waiting = true;
  });
  observer.observe(root);
  observer.observe(document.body);
  return () => observer.disconnect();
}
