// The most bytes of script, minified and not compressed, that each built file may have.
export const budgets = {
  "mcp-view.js": 14_900,
  "sandbox.html": 1_200,
  "review.html": 14_000,
  "browser.html": 30_000,
  "permission-prompt.js": 8_000,
  "console.html": 16_500,
  "test-host.html": 33_300,
};
// Of all of them.
export const total = 117_500;
