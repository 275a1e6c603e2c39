// Entry point of the review page, which shows the changes of a call.
import { render } from "preact";

import { root } from "../../bridge/look.ts";
import { watch } from "../../lib/component.ts";
import type { Diff } from "../../lib/diff/view.tsx";
import { DiffView } from "../../lib/diff/view.tsx";
import { fromJson } from "../../lib/json.ts";
import { Agent, Name } from "../../lib/ui.tsx";
import { visible } from "../../lib/visible.ts";
import { asked, changed, listen, none, recheck, review, show, shown } from "./review.ts";
import type { Review } from "./review.ts";

/** Tells how many changes are excluded. */
function Excluded({ diff }: { readonly diff: Diff }) {
  const { all, left } = diff.parts.value;
  return (
    <p class="left-out notice" role="status" hidden={!asked.value || left === all}>
      {left === 0 ? "No changes are left: deny the call instead." : `${all - left} of ${all} changes are left out.`}
    </p>
  );
}

function ReviewOf({ review: { intent, tool, agent, preview }, diff }: { readonly review: Review; readonly diff: Diff }) {
  return (
    <main>
      <h1><Name text={intent || tool} most={400} /></h1>
      <p class="quiet about">
        {preview ? <strong class="badge">Preview: nothing is done yet</strong> : <span class="badge">Done</span>}
        <Agent name={agent} />
        <span aria-hidden="true">›</span>
        <bdi>{visible(tool)}</bdi>
      </p>
      <p class="stale notice warn" role="status" hidden={!changed.value}>
        <strong>{preview ? "Changed since this preview, so this is no longer what the call would do: " : "Changed since this call: "}</strong>
        <bdi>{changed.value}</bdi>
      </p>
      <Excluded diff={diff} />
      <DiffView diff={diff} />
    </main>
  );
}

function App() {
  watch(() => {
    root.dataset.review = "review" in shown.value ? "ready" : shown.value.failed ? "failed" : "empty";
  });
  const now = shown.value;
  if ("review" in now) return <ReviewOf key={now.review} {...now} />;
  return <p class={now.failed ? "none notice bad" : "none"} role="status">{visible(now.words)}</p>;
}

const embedded = review(fromJson(document.getElementById("data")?.textContent ?? ""));
addEventListener("keydown", ({ key, ctrlKey, metaKey, altKey }) => {
  if (ctrlKey || metaKey || altKey || !("diff" in shown.value)) return;
  if (key === "n") shown.value.diff.go(1);
  else if (key === "p") shown.value.diff.go(-1);
  else if (key === "w") shown.value.diff.toggleWrap();
});
addEventListener("focus", recheck);
if (embedded) show(embedded);
else none(window.parent === window ? "Nothing to review." : "Waiting for the call…");
listen(embedded !== undefined);
render(<App />, document.getElementById("app") ?? document.body);
