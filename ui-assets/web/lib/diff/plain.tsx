// Shows changed files without the lists and numbers of `view.tsx`, for pages that have them elsewhere or little room.
import { Button } from "../ui.tsx";
import { visible } from "../visible.ts";
import type { FileDiff } from "./model.ts";
import { DiffTable, Notes } from "./table.tsx";

export function PlainDiff({ files }: { readonly files: readonly FileDiff[] }) {
  const isSplit = files.some(({ split }) => split.value);
  return (
    <div class={`diff ${isSplit ? "split" : "wrap"}`}>
      <Button aria-pressed={isSplit} press={() => files.forEach(({ split }) => (split.value = !isSplit))}>Side by side</Button>
      {files.map((file) => {
        const { path, to, hunks } = file.change;
        return (
          <section>
            <h3><bdi>{visible(path)}</bdi>{to && <> → <bdi>{visible(to)}</bdi></>}</h3>
            <Notes file={file} />
            {hunks.length > 0 ? <DiffTable file={file} /> : !file.notes.value.length && <p class="note">No lines to show.</p>}
          </section>
        );
      })}
    </div>
  );
}
