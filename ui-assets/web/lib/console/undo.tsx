// Undoes the changes of a call or an agent: shows what that does, and acts on the second press.
import { createRef } from "preact";

import { local, own } from "../component.ts";
import { DiffView } from "../diff/view.tsx";
import { counted } from "../words.ts";
import { host } from "./api.ts";
import { CalmButton } from "./calm.tsx";
import { Failed, Failure } from "./parts.tsx";
import { loadUndo } from "./preview.ts";
import type { UndoOf } from "./preview.ts";

interface UndoProps {
  readonly of: UndoOf;
  /** What is undone, such as `the changes of main`. */
  readonly what: string;
  /** Whether there is something to undo. */
  readonly may: boolean;
  readonly done?: () => void;
}

export function Undo({ of, what, may, done }: UndoProps) {
  const place = own(createRef<HTMLElement>);
  const shown = local<Awaited<ReturnType<typeof loadUndo>>>();
  const failure = own(() => new Failure());
  const words = local("");
  /** Shows a preview or none; the focus would be lost with the pressed button. */
  const show = (next: typeof shown.value): void => {
    shown.value = next;
    failure.error.value = undefined;
    place.current?.focus();
  };
  const preview = async (): Promise<void> => show(await loadUndo(of));
  const undo = async (changes: readonly number[]): Promise<void> => {
    const { files } = await host<{ files: number }>("undo", { of, changes });
    show(undefined);
    words.value = `${counted(files, "file")} restored to before ${what}.`;
    done?.();
  };
  const found = shown.value;
  const isOpen = !!found || failure.error.value !== undefined;
  if (!may && !isOpen && !words.value) return null;
  return (
    <section class="undo" aria-label="Undo" tabIndex={-1} ref={place}>
      {found && (
        <>
          <p>{`Undoing ${what} does this:`}</p>
          <DiffView diff={found.diff} />
        </>
      )}
      <Failed failure={failure} />
      <div class="chips">
        {found ? (
          <CalmButton class="danger" press={() => void failure.of(undo(found.undoes))}>{`Undo ${counted(found.undoes.length, "change")}`}</CalmButton>
        ) : (
          may && <CalmButton press={() => void failure.of(preview())}>{`Undo ${what}…`}</CalmButton>
        )}
        {isOpen && <CalmButton press={() => show(undefined)}>Cancel</CalmButton>}
      </div>
      <p role="status" class={words.value && "notice"}>{words.value}</p>
    </section>
  );
}
