// Entry point of the file browser, an MCP Apps page.
import { app } from "./app.ts";
import { failure, openPath, start } from "./browser.ts";
import { answerWith, connect, on } from "./host.ts";
import { tools } from "./tools.ts";
import { type Fields, explained, textOf } from "./wire.ts";

const [page, sight] = app();
answerWith(tools(sight));
document.body.append(page);
connect().then(
  async () => {
    await start();
    on("ui/notifications/tool-input", ({ path }: Fields) => path && void openPath(textOf(path)));
  },
  (why: unknown) => failure(explained(why)),
);
