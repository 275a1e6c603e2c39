// Entry point of the console's page for questions.
import { open } from "../../lib/console/page.tsx";
import { Questions, update } from "./questions.tsx";

open("Questions", Questions, update);
