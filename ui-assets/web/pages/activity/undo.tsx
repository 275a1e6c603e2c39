// Undoes the changes of an agent: shows what that does, and acts on the second press.
import { signal } from "@preact/signals-core";

import { oneLine } from "../../lib/visible.ts";
import { counted } from "../../lib/words.ts";
import { host } from "../../lib/console/api.ts";
import { CalmButton } from "../../lib/console/calm.tsx";
import { Failed, Failure } from "../../lib/console/parts.tsx";
import { planned } from "../../lib/diff/change.ts";
import { Diff, DiffView } from "../../lib/diff/view.tsx";
import { items } from "../../lib/json.ts";
import type { Subject } from "./calls.ts";

interface Preview {
  readonly undoes: readonly number[];
  readonly changes: unknown;
}

interface Shown {
  readonly undoes: readonly number[];
  readonly diff: Diff;
}

const changesOf = items(planned);

/** The preview that is shown. */
class Undoing {
  readonly shown = signal<Shown | undefined>(undefined);
  readonly failure = new Failure();
  #turn = 0;

  get isOpen(): boolean {
    return this.shown.value !== undefined || this.failure.error.value !== undefined;
  }

  close(): void {
    this.#turn += 1;
    this.shown.value = undefined;
    this.failure.error.value = undefined;
  }

  async preview(of: Subject): Promise<void> {
    this.close();
    const now = this.#turn;
    const { undoes, changes } = await host<Preview>("preview-undo", { of });
    if (now !== this.#turn) return;
    const diff = new Diff(changesOf(changes));
    diff.plan = "Will";
    this.shown.value = { undoes, diff };
  }
}

export const undoing = new Undoing();

interface UndoProps {
  readonly of: Subject;
  readonly agent: string;
  /** Its sub-agents, as in " and 2 sub-agents". */
  readonly others: string;
  readonly done: (words: string) => void;
}

export function Undo({ of, agent, others, done }: UndoProps) {
  const shown = undoing.shown.value;
  const undo = async (changes: readonly number[]): Promise<void> => {
    const { files } = await host<{ files: number }>("undo", { of, changes });
    undoing.close();
    done(`${counted(files, "file")} restored to before the changes of ${oneLine(agent)}${others}.`);
  };
  return (
    <section aria-label="Undo changes">
      {shown && (
        <>
          <p>{`Undoing the changes of ${oneLine(agent)}${others} does this:`}</p>
          <DiffView diff={shown.diff} />
        </>
      )}
      <Failed failure={undoing.failure} />
      <div class="chips">
        {shown ? (
          <CalmButton key="undo" class="danger" press={() => void undoing.failure.of(undo(shown.undoes))}>{`Undo ${counted(shown.undoes.length, "change")}`}</CalmButton>
        ) : (
          <CalmButton key="preview" press={() => void undoing.failure.of(undoing.preview(of))}>Undo changes…</CalmButton>
        )}
        {undoing.isOpen && <CalmButton press={() => undoing.close()}>Cancel</CalmButton>}
      </div>
    </section>
  );
}
