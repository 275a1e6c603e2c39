// Calls a tool of an MCP server, and shows the page that belongs to it.
import "/mcp-view.js";

const view = document.querySelector("mcp-view");
const message = document.querySelector("#message");
const choice = document.querySelector("#tool");

/** Sends a request to the MCP server. */
async function rpc(method, params = {}) {
  const response = await fetch("/rpc", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ method, params }) });
  const { result, error } = await response.json();
  if (error) throw new Error(error.message);
  return result;
}

/** All tools of the server. */
async function listTools() {
  const tools = [];
  let cursor;
  do {
    const page = await rpc("tools/list", cursor ? { cursor } : {});
    tools.push(...page.tools);
    cursor = page.nextCursor;
  } while (cursor);
  return tools;
}

const tools = await listTools();
view.tools = tools;
view.resolver = (uri) => rpc("resources/read", { uri });
view.toolCaller = ({ name, arguments: input }) => {
  const tool = tools.find((one) => one.name === name);
  // The page is not trusted, so a person confirms what may change something.
  if (tool.annotations?.readOnlyHint !== true && !confirm(`Allow the page to call ${name} with ${JSON.stringify(input)}?`)) throw new Error("the person denied the call");
  return rpc("tools/call", { name, arguments: input });
};
view.onopenlink = (url) => confirm(`Open ${url}?`);
view.addEventListener("failed", ({ detail }) => (message.textContent = String(detail)));

for (const tool of tools) {
  if (tool._meta?.ui?.resourceUri) choice.add(new Option(tool.title ?? tool.name, tool.name));
}

document.querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  message.textContent = "";
  try {
    const tool = tools.find((one) => one.name === choice.value);
    const input = JSON.parse(document.querySelector("#arguments").value);
    const result = await rpc("tools/call", { name: tool.name, arguments: input });
    view.toolInput = input;
    view.toolResult = result;
    view.src = tool._meta.ui.resourceUri;
  } catch (error) {
    message.textContent = String(error);
  }
});
