// Entry point of the console's page for the activity of agents.
import { open } from "../../lib/console/page.tsx";
import { History, loadHistory } from "./history.tsx";

open("Activity", History);
loadHistory();
