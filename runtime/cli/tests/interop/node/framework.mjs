// Calls of file tools that every script makes, and what the model must receive; `../python/framework.py` in JavaScript.
//
// A script runs as `node SCRIPT ... PROGRAM ROOT`.
import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

export const [PROGRAM, ROOT] = process.argv.slice(-2);
const ARGUMENTS = ["serve", "--deny", "secret/**", ROOT];

const shown = (message) => (typeof message === "string" ? message : JSON.stringify(message));

function includes(message, ...parts) {
  const text = shown(message);
  for (const part of parts) assert(text.includes(part), `the model does not receive ${part}: ${text}`);
  for (const part of ["ui://", "hidden content"]) assert(!text.includes(part), `the model receives ${part}: ${text}`);
}

function denied(message, path) {
  includes(message, path);
  assert.match(shown(message), /PERMISSION_DENIED|SCOPE_REQUIRED/);
}

/**
 * Makes the calls; `call` gives the message for the model, and `image` says whether such a message has the picture, in the form
 * in which the client gives it to a model.
 */
async function exercise(schemas, call, image) {
  for (const name of ["read_file", "list_directory", "grep", "find", "edit_file", "write_file"]) {
    assert(name in schemas, `${name} is not offered: ${Object.keys(schemas)}`);
  }
  includes(schemas.read_file, "path");
  includes(schemas.edit_file, "old_text", "new_text");
  includes(schemas.write_file, "append", "create");
  const file = join(ROOT, "a.txt");
  const text = readFileSync(file, "utf8");
  includes(await call("list_directory", { path: "." }), "a.txt", "pixel.png");
  includes(await call("read_file", { path: "a.txt" }), ...text.trim().split("\n"));
  includes(await call("grep", { pattern: "second" }), "a.txt", "second line");
  const edits = [{ old_text: "line\nsecond", new_text: "row\nsecond" }];
  includes(await call("edit_file", { path: "a.txt", edits }), "a.txt");
  assert.equal(readFileSync(file, "utf8"), text.replace("first line", "first row"));
  denied(await call("read_file", { path: "secret/key" }), "secret/key");
  const outside = join(dirname(ROOT), "outside.txt");
  denied(await call("write_file", { path: outside, content: "x" }), "outside.txt");
  assert(!existsSync(outside));
  const picture = await call("read_file", { path: "pixel.png" });
  assert(image(picture), `the model does not receive the picture: ${shown(picture)}`);
  writeFileSync(file, text);
}

/** What the root holds. */
function files() {
  const entries = readdirSync(ROOT, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return Object.fromEntries(entries.map(({ parentPath, name }) => [join(parentPath, name), readFileSync(join(parentPath, name), "base64")]));
}

/** Previews and makes changes, as a model does where previews are required. */
async function preview(schemas, call) {
  const file = join(ROOT, "a.txt");
  const text = readFileSync(file, "utf8");
  const edit = { path: "a.txt", edits: [{ old_text: "second line", new_text: "second row" }] };
  const write = { path: "new.txt", content: "all new\n" };
  for (const [name, args, ...diff] of [
    ["edit_file", edit, "-second line", "+second row"],
    ["write_file", write, "+all new"],
  ]) {
    includes(schemas[name], "preview", "preview_token");
    const before = files();
    includes(await call(name, args), "STALE_PREVIEW", "preview_token");
    const previewed = await call(name, { ...args, preview: true });
    includes(previewed, ...diff);
    assert.deepEqual(files(), before);
    const token = shown(previewed).match(/preview_token\W+([0-9a-f]{64})/)?.[1];
    assert(token, `the model does not receive the token: ${shown(previewed)}`);
    includes(await call(name, { ...args, preview_token: token }), args.path);
    assert.notDeepEqual(files(), before);
  }
  assert.equal(readFileSync(file, "utf8"), text.replace("second line", "second row"));
  assert.equal(readFileSync(join(ROOT, "new.txt"), "utf8"), "all new\n");
  writeFileSync(file, text);
  rmSync(join(ROOT, "new.txt"));
}

/** Runs `session(options, steps)`, which starts the program with `options` and awaits `steps(schemas, call, image)`. */
export async function run(session) {
  await session(ARGUMENTS, exercise);
  await session([...ARGUMENTS, "--require-preview"], preview);
}
