// Shows the response of a call, with a tab for each kind of content.
import { h, when } from "../../lib/h.ts";
import type { Child } from "../../lib/h.ts";
import { signal } from "../../lib/signals.ts";
import { errorOf, result } from "./api.ts";
import { at, list, pretty, reason, string, text } from "./json.ts";
import { artifacts, failed } from "./calls.ts";
import { isApp } from "./model.ts";
import type { Tool } from "./model.ts";
import { badge, button, code, notice, row, said, told, words } from "./parts.ts";
import { view } from "./view.ts";

const MEDIA = /^(image\/(png|jpeg|gif|webp|avif|bmp)|audio\/[a-z0-9.+-]+);base64,[A-Za-z0-9+/=\s]*$/;
const DIFF = /diff|patch/;

/** Opens a view that belongs to the called tool. */
type Open = (uri: string) => Node;

function media(block: unknown, kind: "img" | "audio"): Node {
  const type = string(block, "mimeType");
  const data = string(block, "data");
  const address = `${type};base64,${data}`;
  return h(
    "figure",
    MEDIA.test(address) ? h(kind, { src: `data:${address}`, controls: kind === "audio", alt: "what the tool answered" }) : told("no-media"),
    h("figcaption.quiet", said(type, 80), `, ${Math.round((data.length * 3) / 4)} bytes`),
  );
}

const first = async (uri: unknown): Promise<unknown> => list(await result("resources/read", { uri }), "contents")[0];

function contents(read: unknown): Child {
  const body = text(read, "text");
  return body === undefined ? told("no-text") : words(body, DIFF.test(string(read, "mimeType")));
}

const embedded = (read: unknown): Child => [
  h("p.quiet", code(string(read, "uri")), " ", said(string(read, "mimeType"), 80)),
  contents(read),
];

function link(block: unknown, page: Open): Node {
  const shown = signal<Child>(undefined);
  const uri = string(block, "uri");
  const open = async () => {
    try {
      const read = await first(uri);
      shown(isApp(read) ? page(uri) : contents(read));
    } catch (error) {
      shown(notice(reason(error), "bad"));
    }
  };
  const name = said(text(block, "name") ?? "link", 80);
  return h("div", button(["Open ", name], open, "small"), " ", code(uri, 300, "quiet"), shown);
}

type Draw = (block: unknown, page: Open) => Child;

const KINDS: Readonly<Record<string, readonly [string, Draw]>> = {
  text: ["Text", (block) => words(string(block, "text"))],
  image: ["Image", (block) => media(block, "img")],
  audio: ["Audio", (block) => media(block, "audio")],
  resource_link: ["Links", link],
  resource: ["Embedded", (block) => embedded(at(block, "resource"))],
};
const OTHER: readonly [string, Draw] = ["Other", (block) => words(pretty(block))];

const kindOf = (block: unknown): readonly [string, Draw] => {
  const kind = string(block, "type");
  return (Object.hasOwn(KINDS, kind) ? KINDS[kind] : undefined) ?? OTHER;
};

/** A response with tabs for its content; `data-status` is the outcome. */
export function results(title: string, response: unknown, tool: Tool, input: unknown): Node {
  const came = at(response, "result");
  const structured = at(came, "structuredContent");
  const blocks = list(came, "content");
  const bad = failed(response);
  const page: Open = (uri) => view(uri, tool, input, came);
  const tabs = new Map<string, () => Child>();
  if (tool.ui && came) tabs.set("View", () => page(tool.ui));
  for (const kind of new Set(blocks.map(kindOf))) {
    const [name, draw] = kind;
    const of = blocks.filter((block) => kindOf(block) === kind);
    tabs.set(of.length > 1 ? `${name} ${of.length}` : name, () => h("ul.plain", of.map((block) => h("li", draw(block, page)))));
  }
  if (structured !== undefined) tabs.set("Structured", () => words(pretty(structured)));
  tabs.set("Raw", () => words(pretty(response)));
  const names = [...tabs.keys()];
  const tab = signal(names.find((name) => !bad || name !== "View") ?? "Raw");
  return h(
    "section.result",
    { "data-status": bad ? "failed" : "done", "aria-label": title },
    row(h("h3", title), badge(bad ? "failed" : "done", bad ? "bad" : "good")),
    when(() => errorOf(response), (why) => notice(`Error ${why}`, "bad")),
    row(...names.map((name) => button(name, () => tab(name), "small", { on: () => tab() === name }))),
    when(tab, (name) => tabs.get(name)?.()),
  );
}

/** The diffs of a preview, shown in a permission prompt. */
export async function diffs(came: unknown): Promise<Child> {
  return Promise.all(
    artifacts(came).filter((one) => DIFF.test(string(one, "mimeType"))).map(async (one) => {
      const read = await first(at(one, "uri"));
      if (text(read, "text") === undefined) throw new Error("the diff is no text");
      return contents(read);
    }),
  );
}
