// Addresses of real hosts in the environment in, what a person does there out: each file is run by the tests of whoever serves it.
import { defineConfig } from "@playwright/test";

import base from "./playwright.config.ts";

export default defineConfig({ ...base, testDir: "tests/live", testMatch: "*.ts" });
