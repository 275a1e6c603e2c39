// Header and content of the open file.
import { h } from "../../lib/h.ts";
import { oneLine, visible } from "../../lib/visible.ts";
import { changes, onFile, openDiff, said, selection } from "./browser.ts";
import { type Doc, check, doc, docVersion, openDoc, stale } from "./document.ts";
import { context, notify } from "./host.ts";
import { icon } from "./icon.ts";
import { badge, rightsOf } from "./rights.ts";
import { textView } from "./textview.ts";
import { size } from "./tree.ts";
import { explained, isLocked, scopesOf } from "./wire.ts";

export const button = (text: string, onclick: () => void): HTMLElement => h("button", { onclick }, text);
/** An icon button. */
export const signed = (name: "again" | "back", title: string, onclick: () => void): HTMLElement =>
  h(`button.sign ${name}`, { title, onclick }, icon(name));

/** A centered message in a pane. */
export function state(sign: "lock" | "file" | "special", head: string, ...more: (Node | string | false | undefined)[]): HTMLElement {
  return h("div.state", icon(sign), h("p", h("strong", head)), ...more);
}

const quiet = (text: string): HTMLElement => h("p.quiet", text);

function content(shown: Doc): HTMLElement {
  const { kind, failure, address = "", facts, path } = shown;
  const name = visible(path.split("/").at(-1) ?? "");
  if (kind === "failed") {
    const locked = isLocked(failure);
    return state(
      locked ? "lock" : "file",
      locked ? "Not found, or not allowed" : "It could not be read",
      quiet(oneLine(explained(failure), 600)),
      ...scopesOf(failure).map((scope) => h("p", "Needs ", h("code", visible(scope)))),
      button("Try again", () => void openDoc(path)),
    );
  }
  if (kind === "image") return h("div.picture", { tabindex: 0, role: "region", "aria-label": "Picture" }, h("img", { src: address, alt: name }));
  if (kind === "audio") return h("div.state", h("audio", { controls: true, src: address, "aria-label": name }));
  if (kind === "binary") {
    return state(
      "special",
      `No text, but ${oneLine(shown.guess ?? "", 80)}`,
      quiet(`${facts?.bytes?.toLocaleString() ?? "?"} bytes`),
      h("p.quiet", "SHA-256 ", h("code", visible(facts?.hash ?? "not known of files as large as this"))),
    );
  }
  if (shown.total === 0) return state("file", kind === "diff" ? "No line was changed" : "The file is empty");
  return textView(shown);
}

function facts(shown: Doc): readonly HTMLElement[] {
  docVersion();
  const rights = rightsOf(shown.path);
  const [sign = "", meaning = "", tone = ""] = rights ? badge(rights) : [];
  const chosen = selection();
  const told = [
    shown.facts?.bytes !== undefined && size(shown.facts.bytes),
    shown.kind === "text" && (shown.open ? "lines not counted" : `${shown.total.toLocaleString()} lines`),
    shown.crlf && "CRLF",
    shown.modified && `changed ${shown.modified.slice(0, 16).replace("T", " ")} UTC`,
    chosen && (chosen.from === chosen.to ? `line ${chosen.from} selected` : `lines ${chosen.from}–${chosen.to} selected`),
  ];
  const words = told.filter((one) => typeof one === "string").map((text) => h("span", oneLine(text, 60)));
  return !sign ? words : [h("span", { class: `right ${tone}`, title: meaning }, sign), ...words];
}

async function look(): Promise<void> {
  try {
    said((await check()) ? `Unchanged at ${new Date().toLocaleTimeString()}` : "It changed on disk; this is the current version");
  } catch (why) {
    said(oneLine(explained(why)));
  }
}

export function fileView(): HTMLElement {
  function acts(open: Doc): readonly (HTMLElement | string | false | undefined)[] {
    const change = changes()?.get(open.path);
    if (open.kind === "diff") return [button("Show the file", () => void openDoc(open.path))];
    return [
      change?.diff && button("Show the change", () => void openDiff(change)),
      // The host declares that it can show a review page next to this one.
      change?.review &&
        context()["dev.bailiwick/open-resource"] === true &&
        button("Review", () => notify("dev.bailiwick/notifications/open-resource", { uri: change.review })),
      signed("again", "Check for changes", () => void look()),
    ];
  }
  function parts(open: Doc): readonly HTMLElement[] {
    const cut = open.path.lastIndexOf("/") + 1;
    return [
      h(
        "header",
        signed("back", "Back to the files", () => onFile(false)),
        h("div.about",
          h("h2", { title: visible(open.path) }, h("bdi", h("small", visible(open.path.slice(0, cut))), visible(open.path.slice(cut)))),
          h("p.facts", () => facts(open)),
        ),
        h("div.acts", () => acts(open).filter((one) => one instanceof Node)),
      ),
      h("div.told", () => stale() && h("p.notice warn", "It changed on disk since it was opened. ", button("Read it again", () => void look()))),
      content(open),
    ];
  }
  return h("section.main", { "aria-label": "File", tabindex: -1 }, () => {
    const open = doc();
    return open ? parts(open) : state("file", "Choose a file to show its content");
  });
}
