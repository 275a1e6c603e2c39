// Playwright configuration of the screenshots in ../shots: `npm run shots`.
import { defineConfig } from "@playwright/test";

import base from "./playwright.config.ts";

export default defineConfig({ ...base, testDir: "tests/shots", testMatch: "*.shots.ts", timeout: 60_000, retries: 0, use: { ...base.use, colorScheme: "light", viewport: { width: 1280, height: 800 } } });
