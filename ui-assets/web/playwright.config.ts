import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: "tests",
  // These tests need a binary built by cargo; the Rust tests run them.
  testIgnore: process.env.BAILIWICK_PROGRAM === undefined ? "real/**" : [],
  outputDir: process.env.BAILIWICK_BROWSER_OUTPUT ?? "../../target/browser",
  fullyParallel: true,
  workers: 2,
  forbidOnly: true,
  // Prints a character for each test that passes, and the details of those that fail.
  reporter: "dot",
  // Generous limits for loaded machines.
  timeout: 120_000,
  expect: { timeout: 20_000 },
  use: {
    launchOptions: {
      executablePath: process.env.BAILIWICK_CHROMIUM ?? "/usr/bin/chromium",
      args: [
        // Chromium's sandbox needs an unprivileged user or a setuid helper, which containers lack.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
      ],
    },
  },
});
