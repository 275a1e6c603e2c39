// Entry point of the staff dashboard, an example of an MCP Apps page.
import { app } from "./app.ts";
import { failed, host, load, reason } from "./office.ts";

document.body.append(app());
host.connect().then(
  async () => {
    await load();
    // The model may have changed the data, so reload it.
    host.on("ui/notifications/tool-result", () => void load());
  },
  (why: unknown) => failed(reason(why)),
);
