// What a host needs to show a page, the element and its sandbox page together, has 14,000 bytes at most: what the one may
// have more, the other has less.
const SHOWING = 14_000;
const SANDBOX = 964;
// The most bytes of script, minified and not compressed, that each built file may have.
export const budgets = {
  "mcp-view.js": SHOWING - SANDBOX,
  "sandbox.html": SANDBOX,
  "review.html": 14_600,
  "browser.html": 28_300,
  "permission-prompt.js": 9_100,
  "console.html": 19_000,
  "test-host.html": 28_800,
};
// Of all of them.
export const total = 114_000;
// Of pages of examples, which are no part of the library.
export const examples = { hr_dashboard: 15_200 };
