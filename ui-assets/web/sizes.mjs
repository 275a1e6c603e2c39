// The most bytes of script, minified and not compressed, that each built file may have.
export const budgets = {
  "mcp-view.js": 14_400,
  "sandbox.html": 1_150,
  "review.html": 13_550,
  "browser.html": 28_500,
  "permission-prompt.js": 8_800,
  "console.html": 21_500,
  "test-host.html": 29_000,
};
// Of all of them.
export const total = 116_000;
