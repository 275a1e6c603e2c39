// A response to a call in, what it holds out, one tab for each kind of content.
import { h, when } from "../../lib/h.ts";
import type { Child } from "../../lib/h.ts";
import { signal } from "../../lib/signals.ts";
import { result } from "./api.ts";
import { at, list, pretty, reason, string, text } from "./json.ts";
import { failed } from "./calls.ts";
import { isApp } from "./model.ts";
import type { Tool } from "./model.ts";
import { badge, button, code, notice, quiet, row, said, words } from "./parts.ts";
import { errorOf } from "./store.ts";
import { view } from "./view.ts";

const IMAGE = /^image\/(png|jpeg|gif|webp|avif|bmp)$/;
const SOUND = /^audio\/[a-z0-9.+-]+$/;
const DIFF = /diff|patch/;
const BASE64 = /^[A-Za-z0-9+/=\s]*$/;

/** What was called, and what came of it. */
interface Shown {
  readonly title: string;
  readonly response: unknown;
  readonly tool: Tool;
  readonly input: unknown;
}

function media(block: unknown, kind: "img" | "audio"): Node {
  const type = string(block, "mimeType");
  const data = string(block, "data");
  const fits = (kind === "img" ? IMAGE : SOUND).test(type) && BASE64.test(data);
  const src = `data:${type};base64,${data}`;
  return h(
    "figure",
    fits ? h(kind, { src, controls: kind === "audio", alt: "what the tool answered" }) : notice("This cannot be shown.", "warn"),
    h("figcaption.quiet", said(type, 80), `, ${Math.round((data.length * 3) / 4)} bytes`),
  );
}

const first = async (uri: unknown): Promise<unknown> => list(await result("resources/read", { uri }), "contents")[0];

function contents(read: unknown): Child {
  const body = text(read, "text");
  return body === undefined ? quiet("Bytes, which are not shown.") : words(body, DIFF.test(string(read, "mimeType")));
}

const embedded = (read: unknown): Child => [
  h("p.quiet", code(string(read, "uri")), " ", said(string(read, "mimeType"), 80)),
  contents(read),
];

function link(block: unknown, { tool, input, response }: Shown): Node {
  const shown = signal<Child>(undefined);
  const uri = string(block, "uri");
  const open = async () => {
    try {
      const read = await first(uri);
      shown(isApp(read) ? view({ uri, tool, input, result: at(response, "result") }) : contents(read));
    } catch (error) {
      shown(notice(reason(error), "bad"));
    }
  };
  const name = said(text(block, "name") ?? "link", 80);
  return h("li", button(["Open ", name], open, "small"), " ", code(uri, 300, "quiet"), shown);
}

type Draw = (blocks: readonly unknown[], shown: Shown) => Child;

const KINDS: Readonly<Record<string, readonly [string, Draw]>> = {
  view: ["View", (_, { tool, input, response }) => view({ uri: tool.ui ?? "", tool, input, result: at(response, "result") })],
  text: ["Text", (blocks) => blocks.map((block) => words(string(block, "text")))],
  image: ["Image", (blocks) => blocks.map((block) => media(block, "img"))],
  audio: ["Audio", (blocks) => blocks.map((block) => media(block, "audio"))],
  resource_link: ["Links", (blocks, shown) => h("ul.plain", blocks.map((block) => link(block, shown)))],
  resource: ["Embedded", (blocks) => blocks.map((block) => embedded(at(block, "resource")))],
  structured: ["Structured", (_, { response }) => words(pretty(at(response, "result", "structuredContent")))],
  other: ["Other", (blocks) => words(pretty(blocks))],
  raw: ["Raw", (_, { response }) => words(pretty(response))],
};

const kindOf = (block: unknown): string => {
  const kind = string(block, "type");
  return Object.hasOwn(KINDS, kind) ? kind : "other";
};

/** A response with its kinds of content; `data-status` says how it ended. */
export function results(shown: Shown): Node {
  const { title, response, tool } = shown;
  const came = at(response, "result");
  const blocks = list(came, "content");
  const bad = failed(response);
  const kinds = [
    ...(tool.ui === undefined || came === undefined ? [] : ["view"]),
    ...new Set(blocks.map(kindOf)),
    ...(at(came, "structuredContent") === undefined ? [] : ["structured"]),
    "raw",
  ];
  const tab = signal(kinds.find((kind) => !bad || kind !== "view") ?? "raw");
  const of = (kind: string) => blocks.filter((block) => kindOf(block) === kind);
  const label = (kind: string) => `${KINDS[kind]?.[0] ?? ""}${of(kind).length > 1 ? ` ${of(kind).length}` : ""}`;
  return h(
    "section.result",
    { "data-status": bad ? "failed" : "done", "aria-label": title },
    row(h("h3", title), badge(bad ? "failed" : "done", bad ? "bad" : "good")),
    when(() => errorOf(response), (why) => notice(`Error ${why}`, "bad")),
    row(...kinds.map((kind) => button(label(kind), () => tab(kind), "small", { on: () => tab() === kind }))),
    when(tab, (kind) => KINDS[kind]?.[1](of(kind), shown)),
  );
}

/** The diffs that a preview left behind, for whoever has to decide about it. */
export async function diffs(came: unknown): Promise<Child> {
  const links = list(came, "content").filter((block) => DIFF.test(string(block, "mimeType")));
  return Promise.all(
    links.map(async (block) => {
      const read = await first(at(block, "uri"));
      if (text(read, "text") === undefined) throw new Error("the diff is no text");
      return contents(read);
    }),
  );
}
