// Tests of the connection between signals and components.
import { pageOf } from "./bundles.ts";
import { expect, test } from "./fixtures.ts";

test("components render again for the signals that they read, until they are removed", async ({ page, site }) => {
  site.put("/", await pageOf(`
    import { signal } from "@preact/signals-core";
    import { render } from "preact";
    import { h, local, onMount, own, watch } from "../lib/component.ts";
    const name = signal("a");
    const other = signal(0);
    const shown = signal(true);
    window.log = [];
    const Inner = ({ text }) => {
      const count = local(1);
      own(() => log.push("made"));
      onMount(() => {
        log.push("mounted");
        return () => log.push("removed");
      });
      watch(() => log.push("saw " + name.value));
      log.push("rendered");
      return h("button", { onClick: () => (count.value += 1) }, text, name.value, count.value);
    };
    const App = () => (other.value, shown.value && h(Inner, { text: "x" }));
    render(h(App, null), document.body);
    window.set = { name: () => (name.value += "b"), other: () => (other.value += 1), shown: () => (shown.value = false) };
  `));
  await page.goto(site.origin);
  /** Sets a signal; returns what happened since the last call. */
  const log = (signal?: string): Promise<string[]> =>
    page.evaluate(async (signal) => {
      const { log, set } = window as unknown as { log: string[]; set: Record<string, () => void> };
      if (signal) set[signal]?.();
      await new Promise((done) => setTimeout(done));
      return log.splice(0);
    }, signal);
  const button = page.getByRole("button");
  expect(await log()).toEqual(["made", "rendered", "mounted", "saw a"]);
  await button.click();
  await expect(button).toHaveText("xa2");
  expect(await log()).toEqual(["rendered"]);
  expect(await log("name")).toEqual(["saw ab", "rendered"]);
  await expect(button).toHaveText("xab2");
  // The same properties need no other render.
  expect(await log("other")).toEqual([]);
  expect(await log("shown")).toEqual(["removed"]);
  expect(await log("name")).toEqual([]);
});
