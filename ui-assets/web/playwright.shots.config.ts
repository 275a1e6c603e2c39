// Playwright configuration of the README screenshots in ../shots: `npx playwright test --config
// playwright.shots.config.ts`.
import { defineConfig } from "@playwright/test";

import base from "./playwright.config.ts";

export default defineConfig({ ...base, testDir: "tests/shots", testMatch: "*.ts" });
