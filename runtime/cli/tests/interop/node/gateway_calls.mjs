// Calls of third-party tools through the gateway, which scripts make in place of the calls of `framework.mjs`.
import assert from "node:assert/strict";

export const [PROGRAM, ...ARGUMENTS] = process.argv.slice(3);

const shown = (message) => (typeof message === "string" ? message : JSON.stringify(message));

/** One tool answers with content alone, one with structured content, too, and one is refused. */
export async function exercise(schemas, call) {
  for (const name of ["everything__echo", "memory__search_nodes", "memory__delete_entities"]) {
    assert(name in schemas, `${name} is not offered: ${Object.keys(schemas)}`);
  }
  for (const [name, args, expected] of [
    ["everything__echo", { message: "harbour" }, "Echo: harbour"],
    ["memory__search_nodes", { query: "tide" }, "high water at noon"],
    ["memory__delete_entities", { entityNames: ["tide"] }, "SCOPE_REQUIRED"],
    ["memory__search_nodes", { query: "tide" }, "high water at noon"],
  ]) {
    const message = shown(await call(name, args));
    assert(message.includes(expected), `the model does not receive ${expected} of ${name}: ${message}`);
  }
}

export const run = (session) => session(ARGUMENTS, exercise);
