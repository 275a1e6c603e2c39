// The `<permission-prompt>` custom element, which asks a person for permission in the host's own document.
import { render } from "preact";

import { CALM, LATE, left } from "../../lib/calm.ts";
import { isShortcut } from "../../lib/keys.ts";
import { counted } from "../../lib/words.ts";
import { block as read } from "./block.ts";
import type { Block } from "./block.ts";
import { answer, confirmation, isBrief, narrowest } from "./choice.ts";
import type { Choice, LeftOut } from "./choice.ts";
import { Prompt } from "./view.tsx";

/** Height of a line of the preview in pixels. */
const LINE = 20;
/** Shown after a press within the delay. */
const EARLY = "The question has just changed. Press again.";
/** Shown after the shortcut of a call that is dangerous or not allowed just once. */
const CONFIRM = "Press Enter to allow.";

/**
 * Asks a person for permission. `block` takes a message block from the chat. If its `bailiwick.preview` is set, the
 * host shows a preview of the call (`view`), sets `settled` once it is loaded, and sets `leftOut` to the excluded
 * changes; it sets `block` again with the sentence and dangers of what remains, and `settled` to `false` until then. It also
 * sets `block` again when the number of equal calls has changed, which restarts the delay and keeps the person's choice.
 * `permission-granted` or `permission-denied` is dispatched once, with `{id, answer, remember}`, and once more after each
 * `failed()`. With `shortcuts`, the keys `a`, `d` and `o` of the document allow, deny and open the options.
 */
export class PermissionPrompt extends HTMLElement {
  #block: Block | undefined;
  // Set together with the block.
  #choice!: Choice;
  #view: Node | undefined;
  #said: "granted" | "denied" | undefined;
  #why!: string;
  #settled!: boolean;
  /** Whether at least one change is still included. */
  #some!: boolean;
  #options = false;
  /** How much of the preview is below the bar, in words. */
  #below = "";
  /** The first part of it. */
  #next: Element | undefined;
  #since = 0;
  #ticking: ReturnType<typeof setInterval> | undefined;
  #calming: ReturnType<typeof setTimeout> | undefined;
  #gone = new AbortController();

  /** Whether keys anywhere in the document answer. Set it before the block. */
  shortcuts = false;

  constructor() {
    super();
    this.addEventListener("keydown", (event) => {
      // Ignore Escape while composing text and inside input fields.
      const field = (event.target as Element).matches("textarea,[type=number]");
      if (event.key === "Escape" && event.isTrusted && !event.isComposing && !field) this.#answer(false);
    });
  }

  connectedCallback(): void {
    this.role = "group";
    this.ariaLabel = "Permission request";
    this.#calm();
    const { signal } = (this.#gone = new AbortController());
    addEventListener("visibilitychange", this.#calm, { signal });
    addEventListener("keydown", this.#pressed, { signal });
    addEventListener("scroll", () => this.#update(), { capture: true, signal });
    this.#ticking = setInterval(() => this.#update(), 1000);
  }

  disconnectedCallback(): void {
    clearInterval(this.#ticking);
    clearTimeout(this.#calming);
    this.#gone.abort();
  }

  get block(): Block | undefined {
    return this.#block;
  }

  set block(value: unknown) {
    const next = read(value, "block");
    const before = this.#block;
    this.#block = next;
    if (before?.tool_call.id !== next.tool_call.id) {
      this.#choice = narrowest;
      this.#said = undefined;
      this.#why = "";
      this.#options = false;
      this.#some = true;
      this.#settled = !next.bailiwick?.preview;
      this.#view = undefined;
      this.#calm();
    } else if (before.status !== "pending") {
      // A final status never changes.
      this.#block = before;
    } else if (before.bailiwick?.waiting !== next.bailiwick?.waiting) {
      // What the answers do has changed.
      this.#calm();
    }
    this.#update();
  }

  set view(view: Node) {
    this.#view = view;
    this.#update();
  }

  set settled(value: boolean) {
    this.#settled = value;
    this.#why = "";
    // The layout is about to shift under the pointer, so restart the delay.
    this.#calm();
  }

  /** The excluded changes and hunks; `undefined` if nothing is left. */
  set leftOut(out: readonly LeftOut[] | undefined) {
    this.#some = !!out;
    // A broader grant would also allow the excluded hunks, so the answer applies once and to this call only.
    this.#choose(out?.length === 0 ? { out } : { out: out ?? [], time: "once" });
  }

  /** Reports that the answer had no effect, and allows another one. */
  failed(why: string): void {
    this.#said = undefined;
    this.#why = why;
    this.#calm();
  }

  /** Ignores presses for the next `CALM` milliseconds. */
  readonly #calm = (): void => {
    this.#since = performance.now();
    clearTimeout(this.#calming);
    this.#calming = setTimeout(() => this.#update(), CALM);
    this.#update();
  };

  /** Whether the controls changed less than `CALM` milliseconds ago. */
  #isEarly(): boolean {
    return performance.now() - this.#since < CALM;
  }

  #choose(change: Partial<Choice>): void {
    // Any change of the choice clears the confirmation.
    const next = { ...this.#choice, sure: false, ...change };
    // Only an answer that outlasts the call can allow more than the call, and none can allow what nobody could read.
    const choices = this.#block?.bailiwick?.choices;
    const reach = choices?.[next.reach]?.may_last === false ? choices.findIndex(({ may_last }) => may_last) : next.reach;
    this.#choice = isBrief(next) ? { ...next, reach: 0, descendants: false } : { ...next, reach };
    this.#update();
  }

  readonly #pressed = (event: KeyboardEvent): void => {
    if (!this.shortcuts || !isShortcut(event) || !this.checkVisibility()) return;
    if (event.key === "a") this.#allow();
    else if (event.key === "d") this.#answer(false);
    else if (event.key === "o") this.#toggle();
  };

  /** Allows a harmless call once; otherwise moves the focus to the button, so that it takes a second key. */
  #allow(): void {
    const { time, out } = this.#choice;
    if (!this.#may(true)) return;
    const isPlain = time === "once" && out.length === 0 && this.#block?.bailiwick?.dangers.length === 0;
    if (isPlain || this.#isEarly()) return this.#answer(true);
    this.#why = CONFIRM;
    this.#update();
    this.querySelector<HTMLElement>(".allow")?.focus();
  }

  /** Notes how much of the preview is below the upper edge of the bar, and what of it is first. */
  #measure(): void {
    const [bar, view] = [".answer", ".preview"].map((name) => this.querySelector(name)?.getBoundingClientRect());
    const top = bar?.top ?? 0;
    const lines = Math.floor(((view?.bottom ?? 0) - top) / LINE);
    const parts = [...this.querySelectorAll(".preview :is(summary, [role=row], li, p)")].filter((one) => one.getBoundingClientRect().bottom > top);
    const files = parts.filter((one) => one.matches(".file > summary")).length;
    this.#next = parts[0];
    this.#below = lines < 1 ? "" : `↓ ${files > 0 ? counted(files, "more file") : `About ${counted(lines, "more line")}`}`;
  }

  #toggle(): void {
    this.#options = !this.#options;
    this.#update();
  }

  /** The remaining time to answer, formatted by `left`. */
  #left(): string {
    return left(this.#block?.bailiwick?.expires_at ?? Infinity);
  }

  #may(allows: boolean): boolean {
    const open = this.#block?.status === "pending" && !this.#said && this.#left();
    const unsure = confirmation(this.#block?.bailiwick, this.#choice) && !this.#choice.sure;
    return !!open && (!allows || (this.#settled && this.#some && !unsure));
  }

  #answer(allows: boolean): void {
    const block = this.#block;
    const choice = this.#choice;
    if (!block || !this.#may(allows)) return;
    if (this.#isEarly()) {
      this.#why = EARLY;
      return this.#update();
    }
    this.#said = allows ? "granted" : "denied";
    this.#why = "";
    this.#update();
    const detail = { id: block.tool_call.id, answer: answer(block.bailiwick, choice, allows), remember: allows && !isBrief(choice) };
    this.dispatchEvent(new CustomEvent(`permission-${this.#said}`, { detail }));
  }

  #update(): void {
    const block = this.#block;
    if (!block) return;
    const { status } = block;
    const time = this.#left();
    this.#measure();
    const late = `${LATE}.`;
    const decided = (word: string): string => word + (this.#said === status ? "." : " on another page or by somebody else.");
    const words = {
      pending: this.#said ? "Sending…" : time ? this.#why : late,
      granted: decided("Allowed"),
      denied: decided("Denied"),
      expired: late,
      cancelled: "The call ended unanswered, so it was not allowed.",
    }[status];
    const prompt = (
      <Prompt
        key={block.tool_call.id}
        block={block}
        choice={this.#choice}
        view={this.#view}
        open={this.#may(false)}
        allowable={this.#may(true)}
        options={this.#options}
        shortcuts={this.shortcuts}
        left={time}
        status={words}
        below={this.#below}
        scroll={() => this.#next?.scrollIntoView({ block: "center" })}
        choose={(change) => this.#choose(change)}
        toggle={() => this.#toggle()}
        answer={(allows) => this.#answer(allows)}
      />
    );
    render(prompt, this);
    this.toggleAttribute("data-early", this.#isEarly());
    this.dataset["status"] = status;
    this.ariaBusy = `${!this.#settled || (!!this.#said && status === "pending")}`;
  }
}

declare global {
  interface HTMLElementTagNameMap {
    "permission-prompt": PermissionPrompt;
  }
}

customElements.define("permission-prompt", PermissionPrompt);
