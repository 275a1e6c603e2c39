// Entry point of the console's page for the activity of agents.
import { open } from "../../lib/console/page.tsx";
import { Activity } from "./activity.tsx";
import { refreshAgent } from "./agents.tsx";
import { refresh } from "./calls.ts";

open("Activity", Activity, () => {
  refresh();
  refreshAgent();
});
