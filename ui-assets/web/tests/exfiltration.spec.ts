// Exfiltration tests: untrusted pages try to reach a site. Each probe also runs unrestricted, to prove that it works.
import type { BrowserContext, Page } from "@playwright/test";

import { expect, test } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";
import { FORMS, hostPage } from "./hosts.ts";
import type { Form } from "./hosts.ts";
import { ALONE, STILL, WINDOWS } from "./probes.ts";
import { recorder } from "./recorder.ts";

interface Where {
  readonly page: Page;
  readonly context: BrowserContext;
  readonly sites: () => Promise<Site>;
  readonly form: Form;
}

/**
 * Shows the probe in the element, then unrestricted; returns the requests of the first run after `whole` accepts those
 * of the second.
 */
async function leaked({ page, context, sites, form }: Where, body: (site: string, port: number) => string, whole: (arrived: readonly string[]) => boolean): Promise<readonly string[]> {
  const [world, open] = [await recorder(), await recorder()];
  try {
    const site = await hostPage(sites, form, { "ui://a": `<!doctype html><body>${body(world.origin, world.port)}` }, 'view.src = "ui://a";');
    await page.goto(site.origin);
    await expect(page.locator("#view")).toHaveAttribute("data-status", "shown");
    await expect.poll(() => page.frames().length).toBeGreaterThan(2);
    // The first page has sent all its requests by the time the second page has.
    site.put("/open", `<!doctype html><body>${body(open.origin, open.port)}`);
    const other = await context.newPage();
    await other.goto(`${site.origin}/open`);
    await expect.poll(() => whole(open.arrived), { message: `where nothing stops it, only ${open.arrived.join()}` }).toBe(true);
    return world.arrived;
  } finally {
    await Promise.all([world.close(), open.close()]);
  }
}

for (const form of FORMS) {
  test(`${form}: no data leaks through resources that a page loads`, async ({ page, context, sites }) => {
    const names = Object.keys(STILL);
    const body = (site: string, port: number): string =>
      names.map((name, index) => STILL[name]?.(site, port).replaceAll("/leak", `/leak${index}-`)).join("\n");
    const where = { page, context, sites, form };
    expect(await leaked(where, body, (arrived) => names.every((_, index) => arrived.some((one) => one.includes(`/leak${index}-`))))).toEqual([]);
  });

  for (const [name, probe] of Object.entries({ ...ALONE, ...WINDOWS })) {
    test(`${form}: no data leaks through ${name}`, async ({ page, context, sites }) => {
      // Chromium has no policy for WebRTC, as the README documents. This fails once Chromium supports one.
      test.fail(name === "WebRTC");
      expect(await leaked({ page, context, sites, form }, probe, (arrived) => arrived.length > 0)).toEqual([]);
    });
  }
}
