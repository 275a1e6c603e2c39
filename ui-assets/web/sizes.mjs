// `<mcp-view>` and its sandbox page share a budget of 14,000 bytes.
const SHOWING = 14_000;
const SANDBOX = 964;
// Maximum script size of each built file in bytes, minified and uncompressed.
export const budgets = {
  "mcp-view.js": SHOWING - SANDBOX,
  "sandbox.html": SANDBOX,
  "review.html": 14_600,
  "browser.html": 28_300,
  "permission-prompt.js": 9_100,
  "console.html": 19_000,
  "test-host.html": 28_800,
};
// Maximum sum of all scripts.
export const total = 114_000;
// Limits of example pages, which are not part of the library.
export const examples = { hr_dashboard: 15_200 };
