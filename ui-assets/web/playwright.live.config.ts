// Addresses of real hosts in the environment in, what a person does there out: each file is run by the tests of whoever serves it.
import { defineConfig } from "@playwright/test";

import base from "./playwright.config.ts";

// Real servers take longer than pages in memory.
const patience = { timeout: 90_000, expect: { timeout: 15_000 } };

export default defineConfig({ ...base, ...patience, testDir: "tests/live", testMatch: "*.ts" });
