// Addresses of test hosts in the environment in, what a person does there out: run by the tests of the examples.
import { defineConfig } from "@playwright/test";

import base from "./playwright.config.ts";

export default defineConfig({ ...base, testDir: "tests/hosts", testMatch: "*.ts" });
