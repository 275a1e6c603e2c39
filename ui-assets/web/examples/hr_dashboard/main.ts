// An MCP Apps host in, a dashboard of the staff in its frame out.
import { app } from "./app.ts";
import { failed, host, load, reason } from "./office.ts";

document.body.append(app());
host.connect().then(
  async () => {
    await load();
    // What the model had done changes what is shown.
    host.on("ui/notifications/tool-result", () => void load());
  },
  (why: unknown) => failed(reason(why)),
);
