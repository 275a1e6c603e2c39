// Tests of how `<mcp-view>` loads, sandboxes and replaces pages, and reports failures.
import { barriers, expect, test } from "./fixtures.ts";
import { FORMS, expectInside, hostPage, innermost } from "./hosts.ts";
import { GREETED, open } from "./raw.ts";

test("inlines the server's scripts, styles and media", async ({ page, sites }) => {
  const html = '<html lang="de"><head><link rel="stylesheet" href="ui://x.css"><script src="ui://x.js"></script></head><body><img src="ui://x.svg" alt="x"><img src="ui://y.png" alt="y"></body></html>';
  const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const files = {
    "ui://a": { mimeType: "text/html;profile=mcp-app", text: html },
    "ui://x.css": { mimeType: "text/css", text: 'body { color: rgb(1, 2, 3); font-family: "</style>" } /* </style><script>document.title = "broken out"</script> */' },
    "ui://x.js": { mimeType: "text/javascript", text: 'document.documentElement.dataset.ran = "</script><b>"' },
    "ui://x.svg": { mimeType: "image/svg+xml", text: '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="7"><!-- ü # --></svg>' },
    "ui://y.png": { mimeType: "image/png", blob: png },
  };
  await open(page, sites, `view.resolver = (uri) => (${JSON.stringify(files)})[uri];`, "", "shown");
  await expect.poll(() => page.frames().length).toBe(3);
  const inside = innermost(page);
  await expect(inside.locator("body")).toHaveCSS("color", "rgb(1, 2, 3)");
  await expect(inside.locator("html")).toHaveAttribute("data-ran", "</script><b>");
  await expect(inside.locator("body")).toHaveCSS("font-family", '"</style>"');
  await expect.poll(() => inside.locator("img").evaluateAll((all) => all.map((one) => (one as HTMLImageElement).naturalWidth))).toEqual([7, 1]);
  expect(await inside.evaluate(() => document.title)).toBe("");
});

test("network access is limited to the declared domains", async ({ page, sites }) => {
  const [declared, other] = [await sites(), await sites()];
  for (const site of [declared, other]) site.put("/x", { body: "x", headers: { "access-control-allow-origin": "*" } });
  await open(page, sites, `view.resolver = (uri) => ({ mimeType: "text/html;profile=mcp-app", text: pages[uri], _meta: { ui: { csp: { connectDomains: ["${declared.origin}", "${other.origin};", "*", "'unsafe-eval'", "${other.origin} ${other.origin}"] } } } });`);
  const fetched = (origin: string) => innermost(page).evaluate((url) => fetch(url).then(() => "reached", () => "refused"), `${origin}/x`);
  expect(await fetched(declared.origin)).toBe("reached");
  expect(await fetched(other.origin)).toBe("refused");
  expect(other.requests).toEqual([]);
});

test("a host can grant less than the server declares", async ({ page, sites }) => {
  const declared = await sites();
  await open(page, sites, `view.meta = { csp: { connectDomains: ["${declared.origin}"] }, permissions: { camera: {} } }; view.onpagemeta = () => ({});`);
  expect(await innermost(page).evaluate((url) => fetch(url).then(() => "reached", () => "refused"), declared.origin)).toBe("refused");
  expect(await page.evaluate(() => window.view.shadowRoot?.querySelector("iframe")?.allow)).toBe("");
});

for (const form of FORMS) {
  test(`a page gets only the declared permissions that its host grants: ${form}`, async ({ page, sites }) => {
    const asks = "view.meta = { permissions: { geolocation: {}, clipboardWrite: {}, camera: {}, usb: {} } }; view.src = 'ui://a';";
    const has = async (grants: string) => {
      const site = await hostPage(sites, form, { "ui://a": GREETED }, grants + asks);
      await page.goto(site.origin);
      await expect(page.locator("#view")).toHaveAttribute("data-status", "ready");
      return innermost(page).evaluate(() => {
        const { featurePolicy } = document as unknown as { featurePolicy: { allowsFeature(name: string): boolean } };
        return ["geolocation", "clipboard-write", "camera", "microphone", "usb"].filter((name) => featurePolicy.allowsFeature(name));
      });
    };
    expect(await has("")).toEqual([]);
    expect(await has("view.onpagemeta = ({ permissions: { camera, ...permissions } }) => ({ permissions });")).toEqual(["geolocation", "clipboard-write"]);
  });
}

test("a same-origin sandbox page gets an opaque origin", async ({ page, sites }) => {
  const site = await hostPage(sites, "same port", { "ui://a": GREETED }, "view.src = 'ui://a';");
  const host = await (await fetch(site.origin)).text();
  site.put("/outer", `<!doctype html><html lang="en"><title>outer</title><iframe srcdoc="${host.replaceAll("&", "&amp;").replaceAll('"', "&quot;")}"></iframe></html>`);
  await page.goto(`${site.origin}/outer`);
  const view = page.frameLocator("iframe").locator("#view");
  await expect(view).toHaveAttribute("data-status", "ready");
  expect(await view.evaluate((one) => one.shadowRoot?.querySelector("iframe")?.getAttribute("sandbox"))).toBe("allow-scripts allow-forms");
});

test("the policy blocks eval", async ({ page, sites }) => {
  await open(page, sites, "", `${GREETED}<script>setTimeout(() => { try { new Function("1")(); document.title = "made" } catch (e) { document.title = e.name } })</script>`);
  await expectInside(page, () => document.title).toBe("EvalError");
});

test("a failed page shows an alert and dispatches an event", async ({ page, sites }) => {
  await open(page, sites, "view.addEventListener('failed', (e) => document.title = e.detail.message); view.src = 'ui://missing';", GREETED, "failed");
  await expect(page.getByRole("alert")).toContainText("no such resource: ui://missing");
  await expect(page).toHaveTitle("no such resource: ui://missing");
  await page.evaluate(() => Object.assign(window.view, { resolver: () => ({ mimeType: "text/plain", text: "x" }), src: "ui://text" }));
  await expect(page.getByRole("alert")).toContainText("text/plain");
  await page.evaluate(() => Object.assign(window.view, { resolver: () => { throw new Error("<b>evil\u202etxt\u0000" + "x".repeat(10_000)); }, src: "ui://hostile" }));
  await expect(page.getByRole("alert")).toHaveText(/^Error: <b>evil txt x{475,500}$/);
  await page.evaluate(() => Object.assign(window.view, { resolver: undefined, src: "ui://b" }));
  await expect(page.getByRole("alert")).toContainText("no `resolver`");
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    expect(await barriers(page)).toEqual([]);
  }
  await page.evaluate(() => Object.assign(window.view, { html: "<p>shown" }));
  await expect(page.locator("#view")).toHaveAttribute("data-status", "shown");
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("a missing sandbox page is an error", async ({ page, sites }) => {
  await page.clock.install();
  const site = await hostPage(sites, "same port", { "ui://a": GREETED }, "view.setAttribute('sandbox-url', '/none'); view.src = 'ui://a';");
  await page.goto(site.origin);
  await expect(page.locator("#view")).toHaveAttribute("data-status", "loading");
  await page.clock.fastForward(11_000);
  await expect(page.getByRole("alert")).toContainText("/none");
});

test("defer reads nothing before render()", async ({ page, sites }) => {
  const site = await hostPage(sites, "same port", { "ui://a": GREETED }, "window.reads = 0; const read = view.resolver; view.resolver = (uri) => (reads++, read(uri)); view.src = 'ui://a'; view.render = () => {};");
  await page.goto(site.origin);
  await page.evaluate(() => new Promise(requestAnimationFrame));
  expect(await page.evaluate(() => [(window as unknown as { reads: number }).reads, window.view.status])).toEqual([0, "idle"]);
  await page.evaluate(() => (Object.getPrototypeOf(window.view) as { render(): void }).render.call(window.view));
  await expect(page.locator("#view")).toHaveAttribute("data-status", "ready");
  expect(await page.evaluate(() => (window as unknown as { reads: number }).reads)).toBe(1);
});

test("synchronous property changes render once with the final values", async ({ page, sites }) => {
  await open(page, sites, "");
  const reads = await page.evaluate(() => {
    const reads: string[] = [];
    Object.assign(window.view, { src: "ui://before", resolver: undefined });
    window.view.setAttribute("sandbox-url", "");
    Object.assign(window.view, { src: "ui://b", resolver: (uri: string) => (reads.push(uri), "<title>b</title>") });
    return new Promise<string[]>((resolve) => {
      new MutationObserver(() => window.view.status === "shown" && resolve(reads)).observe(window.view, { attributeFilter: ["data-status"] });
    });
  });
  expect(reads).toEqual(["ui://b"]);
  await expectInside(page, () => document.title).toBe("b");
});

test("a deferred page is shown by render()", async ({ page, sites }) => {
  await open(page, sites, "");
  const statuses = await page.evaluate(async () => {
    const view = document.createElement("mcp-view");
    document.body.append(view);
    Object.assign(view, { src: "ui://b", resolver: () => "<title>b</title>" });
    view.setAttribute("defer", "");
    await new Promise((resolve) => setTimeout(resolve));
    const before = view.status;
    void view.render();
    return [before, view.status];
  });
  expect(statuses).toEqual(["idle", "loading"]);
});

test("a pending render ends when it is replaced or removed", async ({ page, sites }) => {
  await page.clock.install();
  await open(page, sites, "");
  // From here on, no timeout expires.
  await page.clock.pauseAt(Date.now() + 60_000);
  const ended = await page.evaluate(async () => {
    const { view } = window;
    view.setAttribute("sandbox-url", "/none");
    const status = await new Promise<string>((resolve) => {
      // The frame exists, but its sandbox page never reports that it is ready.
      new MutationObserver(() => view.shadowRoot?.querySelector("iframe") && resolve(view.status)).observe(view.shadowRoot as ShadowRoot, { childList: true });
    });
    const first = (view as unknown as { render(): Promise<void> }).render();
    await new Promise((resolve) => new MutationObserver(resolve).observe(view.shadowRoot as ShadowRoot, { childList: true }));
    view.remove();
    await first;
    return [status, view.status];
  });
  expect(ended).toEqual(["loading", "closed"]);
});
