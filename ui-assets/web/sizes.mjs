// The most bytes of script, minified and not compressed, that each built file may have.
export const budgets = {
  "mcp-view.js": 14_900,
  "sandbox.html": 1_200,
  "review.html": 14_000,
  "browser.html": 30_000,
  "permission-prompt.js": 8_800,
  "console.html": 21_500,
  "test-host.html": 33_300,
};
// Of all of them.
export const total = 123_300;
// Of pages of examples, which are no part of the library.
export const examples = { hr_dashboard: 15_200 };
