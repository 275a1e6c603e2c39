import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: "tests",
  // What needs a program that cargo builds: its test there runs these.
  testIgnore: process.env.BAILIWICK_FS === undefined ? "real/**" : [],
  outputDir: process.env.BAILIWICK_BROWSER_OUTPUT ?? "../../target/browser",
  fullyParallel: true,
  workers: 2,
  forbidOnly: true,
  reporter: "line",
  // Nothing waits this long but on a machine that does much else.
  timeout: 120_000,
  expect: { timeout: 20_000 },
  use: {
    launchOptions: {
      executablePath: process.env.BAILIWICK_CHROMIUM ?? "/usr/bin/chromium",
      args: [
        // The sandbox of Chromium needs a user other than root or a helper that containers lack.
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
