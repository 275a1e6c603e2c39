// Which SDK and era, calls and a server in; what its tools answered, checked against their schemas, out as JSON.
//
// node call.mjs v1|legacy|modern CALLS http URL
// node call.mjs v1|legacy|modern CALLS stdio COMMAND ARGUMENT...
import { Client } from "@modelcontextprotocol/client";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as OldStdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as OldHttp } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Ajv2020 } from "ajv/dist/2020.js";

const [sdk, calls, transport, target, ...args] = process.argv.slice(2);
const old = sdk === "v1";
const about = { name: "call.mjs", version: "1.0.0" };
const mode = sdk === "modern" ? { pin: "2026-07-28" } : "legacy";
const client = old ? new OldClient(about) : new Client(about, { versionNegotiation: { mode } });
const [Stdio, Http] = old ? [OldStdio, OldHttp] : [StdioClientTransport, StreamableHTTPClientTransport];
await client.connect(
  transport === "http" ? new Http(new URL(target)) : new Stdio({ command: target, args }),
);

const { tools } = await client.listTools();
const ajv = new Ajv2020({ strict: true, strictTypes: false, strictRequired: false });
const schemas = new Map(tools.map((tool) => [tool.name, ajv.compile(tool.outputSchema)]));
const faults = [];
for (const { tool, arguments: given, fails, preview } of JSON.parse(calls)) {
  // The SDK itself refuses a result that is not as the tool's schema says.
  const params = { name: tool, arguments: given, _meta: preview ? { preview } : undefined };
  const result = await client.callTool(params);
  const fits = schemas.get(tool);
  if (!fits(result.structuredContent)) faults.push({ tool, given, errors: fits.errors, result });
  if ((result.isError ?? false) !== fails) faults.push({ tool, given, fails, result });
  if (preview && result._meta?.preview !== true) faults.push({ tool, given, preview, result });
}
const { resources } = await client.listResources();
const listed = resources.find(({ uri }) => uri.startsWith("file://"));
const read = await client.readResource({ uri: `${listed.uri}/a.txt` });
const prompts = (await client.listPrompts()).prompts.map(({ name }) => name);
await client.close();
console.log(
  JSON.stringify({ tools: tools.map(({ name }) => name).sort(), faults, text: read.contents[0].text, prompts }),
);
