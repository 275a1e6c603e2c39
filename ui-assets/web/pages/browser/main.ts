// An MCP Apps host in, a file browser in its frame out.
import { app } from "./app.ts";
import { failure, openPath, said, start } from "./browser.ts";
import { able, answerWith, ask, connect, host, on } from "./host.ts";
import type { Change } from "./server.ts";
import { tools } from "./tools.ts";
import { type Fields, explained, fieldsOf, textOf } from "./wire.ts";

function review({ review }: Change): void {
  ask("ui/open-link", { url: review }).catch((why: unknown) => said(explained(why)));
}

const [page, sight] = app(() => (fieldsOf(able()["experimental"])["dev.bailiwick/open-resource"] === undefined ? undefined : review));
answerWith(tools(sight));
document.body.append(page);
connect().then(
  async () => {
    able(fieldsOf(host()["hostCapabilities"]));
    await start();
    on("ui/notifications/tool-input", ({ path }: Fields) => path !== undefined && void openPath(textOf(path)));
  },
  (why: unknown) => failure(explained(why)),
);
