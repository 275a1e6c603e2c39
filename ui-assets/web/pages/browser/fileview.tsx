// Header and content of the open file.
import type { ComponentChildren } from "preact";

import { PlainDiff } from "../../lib/diff/plain.tsx";
import { oneLine, visible } from "../../lib/visible.ts";
import { changes, onFile, openDiff, said, selection } from "./browser.ts";
import { check, doc, docVersion, openDoc, stale } from "./document.ts";
import type { Doc } from "./document.ts";
import { context, notify } from "./host.ts";
import { Icon, IconButton } from "./icon.tsx";
import type { Sign } from "./icon.tsx";
import { badge, rightsOf } from "./rights.ts";
import { TextView } from "./textview.tsx";
import { size } from "./tree.ts";
import { explained, isLocked, scopesOf } from "./wire.ts";

interface StateProps {
  readonly sign: Sign;
  readonly head: string;
  readonly children?: ComponentChildren;
}

/** A centered message in a pane. */
export const State = ({ sign, head, children }: StateProps) => (
  <div class="state">
    <Icon name={sign} />
    <p><strong>{head}</strong></p>
    {children}
  </div>
);

function Failure({ of: { failure, path } }: { readonly of: Doc }) {
  const locked = isLocked(failure);
  return (
    <State sign={locked ? "lock" : "file"} head={locked ? "Not found, or not allowed" : "It could not be read"}>
      <p class="quiet">{oneLine(explained(failure), 600)}</p>
      {scopesOf(failure).map((scope) => (
        <p>Needs <code>{visible(scope)}</code></p>
      ))}
      <button onClick={() => void openDoc(path)}>Try again</button>
    </State>
  );
}

function Content({ shown }: { readonly shown: Doc }) {
  docVersion.value;
  const { kind, address = "", facts, path, diff } = shown;
  const name = visible(path.split("/").at(-1) ?? "");
  if (kind === "failed") return <Failure of={shown} />;
  if (kind === "image") {
    return (
      <div class="picture" tabIndex={0} role="region" aria-label="Picture"><img src={address} alt={name} /></div>
    );
  }
  if (kind === "audio") {
    return (
      <div class="state"><audio controls src={address} aria-label={name} /></div>
    );
  }
  if (kind === "binary") {
    return (
      <State sign="special" head={`No text, but ${oneLine(shown.guess ?? "", 80)}`}>
        <p class="quiet">{`${facts?.bytes?.toLocaleString() ?? "?"} bytes`}</p>
        <p class="quiet">SHA-256 <code>{visible(facts?.hash ?? "not known of files as large as this")}</code></p>
      </State>
    );
  }
  if (diff) return <PlainDiff files={diff} />;
  return shown.total === 0 ? <State sign="file" head="The file is empty" /> : <TextView shown={shown} />;
}

function Facts({ shown }: { readonly shown: Doc }) {
  docVersion.value;
  const rights = rightsOf(shown.path);
  const [sign = "", meaning = "", tone = ""] = rights ? badge(rights) : [];
  const chosen = selection.value;
  const told = [
    shown.facts?.bytes !== undefined && size(shown.facts.bytes),
    shown.kind === "text" && (shown.open ? "lines not counted" : `${shown.total.toLocaleString()} lines`),
    shown.crlf && "CRLF",
    shown.modified && `changed ${shown.modified.slice(0, 16).replace("T", " ")} UTC`,
    chosen && (chosen.from === chosen.to ? `line ${chosen.from} selected` : `lines ${chosen.from}–${chosen.to} selected`),
  ];
  return (
    <p class="facts">
      {sign && (
        <span class={`right ${tone}`} title={meaning}>{sign}</span>
      )}
      {told.map((text) => text && <span>{oneLine(text, 60)}</span>)}
    </p>
  );
}

async function look(): Promise<void> {
  try {
    said.value = (await check()) ? `Unchanged at ${new Date().toLocaleTimeString()}` : "Changed; this is the current version";
  } catch (why) {
    said.value = oneLine(explained(why));
  }
}

function Actions({ open }: { readonly open: Doc }) {
  const change = changes.value?.get(open.path);
  if (open.kind === "diff") return change?.op !== "delete" && <button onClick={() => void openDoc(open.path)}>Show the file</button>;
  return (
    <>
      {change?.review && <button onClick={() => void openDiff(change)}>Show the change</button>}
      {/* The host declares that it can show a review page next to this one. */}
      {change?.review && context()["dev.bailiwick/open-resource"] === true && (
        <button onClick={() => notify("dev.bailiwick/notifications/open-resource", { uri: change.review })}>Review</button>
      )}
      <IconButton name="again" title="Check for changes" press={() => void look()} />
    </>
  );
}

function Open({ open }: { readonly open: Doc }) {
  const cut = open.path.lastIndexOf("/") + 1;
  return (
    <>
      <header>
        <IconButton name="back" title="Back to the files" press={() => (onFile.value = false)} />
        <div class="about">
          <h2 title={visible(open.path)}>
            <bdi>
              <small>{visible(open.path.slice(0, cut))}</small>
              {visible(open.path.slice(cut))}
            </bdi>
          </h2>
          <Facts shown={open} />
        </div>
        <div class="acts"><Actions open={open} /></div>
      </header>
      <div class="told">
        {stale.value && (
          <p class="notice warn">It changed on disk since it was opened. <button onClick={() => void look()}>Read it again</button></p>
        )}
      </div>
      <Content key={open} shown={open} />
    </>
  );
}

export const FileView = () => (
  <section class="main" aria-label="File" tabIndex={-1}>
    {doc.value ? <Open open={doc.value} /> : <State sign="file" head="Choose a file to show its content" />}
  </section>
);
