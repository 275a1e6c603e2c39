// The data of a call in, what it changes as a page out.
import { el } from "../../lib/dom.ts";

document.getElementById("app")?.append(el("p", {}, "Nothing to review."));
