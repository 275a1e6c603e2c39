// Entry point of the console's page for permissions.
import { open } from "../../lib/console/page.tsx";
import { refresh } from "./may.tsx";
import { Permissions } from "./permissions.tsx";

open("Permissions", Permissions, refresh);
