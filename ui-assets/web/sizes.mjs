// Maximum script size of each built file in bytes, minified and uncompressed.
const PAGE = 60_000;
export const budgets = {
  "browser.html": 57_000,
  "review.html": PAGE,
  // A prompt describes what remains once a person has left something out, and questions of a kind are answered together.
  "console.html": 63_500,
  "activity.html": PAGE,
  "permissions.html": PAGE,
  "test-host.html": PAGE,
  "sandbox.html": 1_100,
  "mcp-view.js": 14_000,
  "permission-prompt.js": PAGE,
};
// Limits of example pages, which are not part of the library.
export const examples = { hr_dashboard: PAGE };
