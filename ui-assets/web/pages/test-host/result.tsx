// Shows the response of a call, with a tab for each kind of content.
import type { ComponentChild } from "preact";

import { local, own } from "../../lib/component.ts";
import { fromPatch } from "../../lib/diff/patch.ts";
import { FileDiff } from "../../lib/diff/model.ts";
import { PlainDiff } from "../../lib/diff/plain.tsx";
import { errorOf } from "./api.ts";
import { artifacts, failed, first } from "./calls.ts";
import { at, list, pretty, reason, string, text } from "./json.ts";
import { Message } from "./messages.tsx";
import { isApp } from "./model.ts";
import type { Tool } from "./model.ts";
import { Button, Row, Words, badge, code, notice, said } from "./parts.tsx";
import { View } from "./view.tsx";

const MEDIA = /^(image\/(png|jpeg|gif|webp|avif|bmp)|audio\/[a-z0-9.+-]+);base64,[A-Za-z0-9+/=\s]*$/;
const DIFF = /diff|patch/;

/** Opens a view that belongs to the called tool. */
type Open = (uri: string) => ComponentChild;

interface BlockProps {
  readonly block: unknown;
  readonly page: Open;
}

function Media({ block }: BlockProps) {
  const type = string(block, "mimeType");
  const data = string(block, "data");
  const address = `${type};base64,${data}`;
  return (
    <figure>
      {!MEDIA.test(address) ? (
        <Message name="no-media" />
      ) : string(block, "type") === "audio" ? (
        <audio src={`data:${address}`} controls />
      ) : (
        <img src={`data:${address}`} alt="image of the result" />
      )}
      <figcaption class="quiet">{said(type, 80)}, {Math.round((data.length * 3) / 4)} bytes</figcaption>
    </figure>
  );
}

/** A unified diff. */
export function Patch({ text }: { readonly text: string }) {
  return <PlainDiff files={own(() => fromPatch(text).map((change) => new FileDiff(change)))} />;
}

function Contents({ read }: { readonly read: unknown }) {
  const body = text(read, "text");
  if (body === undefined) return <Message name="no-text" />;
  return DIFF.test(string(read, "mimeType")) ? <Patch text={body} /> : <Words text={body} />;
}

function Embedded({ block }: BlockProps) {
  const read = at(block, "resource");
  return (
    <>
      <p class="quiet">{code(string(read, "uri"))} {said(string(read, "mimeType"), 80)}</p>
      <Contents read={read} />
    </>
  );
}

function Link({ block, page }: BlockProps) {
  const shown = local<ComponentChild>(undefined);
  const uri = string(block, "uri");
  const open = async (): Promise<void> => {
    try {
      const read = await first(uri);
      shown.value = isApp(read) ? page(uri) : <Contents read={read} />;
    } catch (error) {
      shown.value = notice(reason(error), "bad");
    }
  };
  return (
    <div>
      <Button class="small" press={open}>Open {said(text(block, "name") ?? "link", 80)}</Button>{" "}
      {code(uri, 300, "quiet")}
      {shown.value}
    </div>
  );
}

type Kind = readonly [name: string, view: (props: BlockProps) => ComponentChild];

const KINDS: Readonly<Record<string, Kind>> = {
  text: ["Text", ({ block }) => <Words text={string(block, "text")} />],
  image: ["Image", Media],
  audio: ["Audio", Media],
  resource_link: ["Links", Link],
  resource: ["Embedded", Embedded],
};
const OTHER: Kind = ["Other", ({ block }) => <Words text={pretty(block)} />];

const kindOf = (block: unknown): Kind => {
  const kind = string(block, "type");
  return (Object.hasOwn(KINDS, kind) ? KINDS[kind] : undefined) ?? OTHER;
};

interface ResultsProps {
  readonly title: string;
  readonly response: unknown;
  readonly tool: Tool;
  readonly input: unknown;
}

/** A response with tabs for its content; `data-status` is the outcome. */
export function Results({ title, response, tool, input }: ResultsProps) {
  const came = at(response, "result");
  const structured = at(came, "structuredContent");
  const blocks = list(came, "content");
  const isBad = failed(response);
  const page: Open = (uri) => <View uri={uri} tool={tool} input={input} came={came} />;
  const tabs = new Map<string, () => ComponentChild>();
  if (tool.ui && came) tabs.set("View", () => page(tool.ui));
  for (const kind of new Set(blocks.map(kindOf))) {
    const [name, Block] = kind;
    const of = blocks.filter((block) => kindOf(block) === kind);
    tabs.set(of.length > 1 ? `${name} ${of.length}` : name, () => <ul class="plain">{of.map((block) => <li><Block block={block} page={page} /></li>)}</ul>);
  }
  if (structured !== undefined) tabs.set("Structured", () => <Words text={pretty(structured)} />);
  tabs.set("Raw", () => <Words text={pretty(response)} />);
  const names = [...tabs.keys()];
  const tab = local(names.find((name) => !isBad || name !== "View") ?? "Raw");
  const error = errorOf(response);
  return (
    <section class="result" data-status={isBad ? "failed" : "done"} aria-label={title}>
      <Row>
        <h3>{title}</h3>
        {badge(isBad ? "failed" : "done", isBad ? "bad" : "good")}
      </Row>
      {error && notice(`Error ${error}`, "bad")}
      <Row>{names.map((name) => <Button class="small" on={tab.value === name} press={() => (tab.value = name)}>{name}</Button>)}</Row>
      <div key={tab.value}>{tabs.get(tab.value)?.()}</div>
    </section>
  );
}

/** The diffs of a preview, shown in a permission prompt. */
export const diffs = (came: unknown): Promise<string[]> =>
  Promise.all(
    artifacts(came)
      .filter((one) => DIFF.test(string(one, "mimeType")))
      .map(async (one) => {
        const body = text(await first(at(one, "uri")), "text");
        if (body === undefined) throw new Error("the diff is no text");
        return body;
      }),
  );
