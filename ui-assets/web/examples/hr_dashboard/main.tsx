// Entry point of the staff dashboard, an example of an MCP Apps page.
import { render } from "preact";

import { App } from "./app.tsx";
import { failed, host, load, reason } from "./office.ts";

render(<App />, document.getElementById("app") ?? document.body);
host.connect().then(
  async () => {
    await load();
    // The model may have changed the data, so reload it.
    host.on("ui/notifications/tool-result", () => void load());
  },
  (why: unknown) => (failed.value = reason(why)),
);
