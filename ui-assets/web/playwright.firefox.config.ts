// Playwright configuration of the tests in Firefox. Playwright runs them, and Puppeteer drives the browser, since
// Playwright drives only its own build of Firefox.
import { defineConfig } from "@playwright/test";

import base from "./playwright.config.ts";

export default defineConfig({ ...base, testDir: "tests/firefox", testMatch: "*.ts", testIgnore: [], workers: 1 });
