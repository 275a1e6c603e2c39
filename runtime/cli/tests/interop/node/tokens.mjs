// What the list of tools and each kind of result cost a model, in tokens of cl100k_base, beside the reference server.
//
// node tokens.mjs PROGRAM          a table in Markdown
// node tokens.mjs PROGRAM --json   the tokens of our list of tools, and its bytes
import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { encode } from "gpt-tokenizer/encoding/cl100k_base";

const [program, form] = process.argv.slice(2);
const reference = createRequire(import.meta.url).resolve("@modelcontextprotocol/server-filesystem/dist/index.js");
const tokens = (value) => encode(typeof value === "string" ? value : JSON.stringify(value)).length;

/** A client of the server that `command` starts. */
async function connect(command, args) {
  const client = new Client({ name: "tokens.mjs", version: "1.0.0" }, { versionNegotiation: { mode: "legacy" } });
  await client.connect(new StdioClientTransport({ command, args, stderr: "ignore" }));
  return client;
}

/** The tokens of a list of tools as models are given it, and the bytes of all of it. */
function listed({ tools }) {
  const given = tools.map(({ name, description, inputSchema }) => ({ name, description, inputSchema }));
  return { tools: tools.length, tokens: given.reduce((sum, tool) => sum + tokens(tool), 0), bytes: JSON.stringify(tools).length };
}

const root = await realpath(await mkdtemp(join(tmpdir(), "tokens-")));
const at = (name) => join(root, name);
await mkdir(at("src"));
const line = (n) => `    let value_${n} = compute(${n}, "text");\n`;
const source = `fn main() {\n${Array.from({ length: 40 }, (_, n) => line(n)).join("")}}\n`;
for (const name of ["src/main.rs", "src/other.rs", "src/third.rs"]) await writeFile(at(name), source);

// Each kind of result, as our tool and as the nearest one of the reference server.
const calls = [
  ["read of 42 lines", "read_file", { path: at("src/main.rs") }, "read_text_file", { path: at("src/main.rs") }],
  ["first 5 lines", "read_file", { path: at("src/main.rs"), limit: 5 }, "read_text_file", { path: at("src/main.rs"), head: 5 }],
  ["three files", "read_file", { paths: ["main", "other", "third"].map((name) => at(`src/${name}.rs`)) }, "read_multiple_files", { paths: ["main", "other", "third"].map((name) => at(`src/${name}.rs`)) }],
  ["listing of 3 files", "list_directory", { path: at("src") }, "list_directory_with_sizes", { path: at("src") }],
  ["3 paths found", "find", { path: root, pattern: "*.rs" }, "search_files", { path: root, pattern: "**/*.rs" }],
  ["9 lines found", "grep", { path: root, pattern: "value_[123] " }],
  ["facts of a file", "stat", { path: at("src/main.rs") }, "get_file_info", { path: at("src/main.rs") }],
  ["write", "write_file", { path: at("new.txt"), content: "one\n" }, "write_file", { path: at("new2.txt"), content: "one\n" }],
  ["edit of one line", "edit_file", { path: at("src/main.rs"), edits: [{ old_text: line(7), new_text: line(70) }] }, "edit_file", { path: at("src/other.rs"), edits: [{ oldText: line(7), newText: line(70) }] }],
  ["new directory", "make_directory", { path: at("docs") }, "create_directory", { path: at("docs2") }],
  ["move", "move", { from: at("new.txt"), to: at("moved.txt") }, "move_file", { source: at("new2.txt"), destination: at("moved2.txt") }],
  ["copy", "copy", { from: at("src"), to: at("copy") }],
  ["delete", "delete", { path: at("moved.txt") }],
  ["refusal", "read_file", { path: at("none") }, "read_text_file", { path: at("none") }],
];

const ours = await connect(program, ["serve", root]);
try {
  const own = listed(await ours.listTools());
  if (form === "--json") {
    console.log(JSON.stringify(own));
  } else {
    const theirs = await connect(process.execPath, [reference, root]);
    const its = listed(await theirs.listTools());
    const cost = async (client, tool, input) => {
      if (tool === undefined) return ["-", "-"];
      const { content, structuredContent } = await client.callTool({ name: tool, arguments: input });
      const text = content.map((block) => block.text ?? JSON.stringify(block)).join("\n");
      // The directory of this run would count for more than a real one.
      const short = (said) => tokens(said.replaceAll(root, "/repo"));
      return [short(text), structuredContent === undefined ? "-" : short(JSON.stringify(structuredContent))];
    };
    console.log("| | text | structured | reference: text | reference: structured |\n|---|---|---|---|---|");
    for (const [kind, tool, input, other, otherInput] of calls) {
      const row = [...(await cost(ours, tool, input)), ...(await cost(theirs, other, otherInput))];
      console.log(`| ${kind} | ${row.join(" | ")} |`);
    }
    console.log(`\nList of tools: ${own.tokens} tokens for ${own.tools} tools, ${own.bytes} bytes with extension data and output schemas; reference: ${its.tokens} for ${its.tools}, ${its.bytes} bytes.`);
    await theirs.close();
  }
} finally {
  await ours.close();
  await rm(root, { recursive: true, force: true });
}
