// Playwright configuration of the live tests. The Rust tests start the hosts and pass their URLs in environment
// variables.
import { defineConfig } from "@playwright/test";

import base from "./playwright.config.ts";

// Real servers are slower than in-memory pages.
const patience = { timeout: 90_000, expect: { timeout: 15_000 } };

export default defineConfig({ ...base, ...patience, testDir: "tests/live", testMatch: "*.ts" });
