// Entry point of the console's page for questions.
import { open } from "../../lib/console/page.tsx";
import { Inbox } from "./inbox.tsx";
import { update } from "./inbox.ts";

open("Questions", Inbox, update);
