// Entry point of the file browser, an MCP Apps page.
import { render } from "preact";

import { string } from "../../lib/json.ts";
import type { Fields } from "../../lib/json.ts";
import { App } from "./app.tsx";
import { failure, openPath, start } from "./browser.ts";
import { answerWith, connect, on } from "./host.ts";
import { tools } from "./tools.ts";
import { treeRows } from "./treeview.tsx";
import { explained } from "./wire.ts";

answerWith(tools(treeRows));
render(<App />, document.getElementById("app") ?? document.body);
connect().then(
  async () => {
    await start();
    on("ui/notifications/tool-input", ({ path }: Fields) => path && void openPath(string(path)));
  },
  (why: unknown) => (failure.value = explained(why)),
);
