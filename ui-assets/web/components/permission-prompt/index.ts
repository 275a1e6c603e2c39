// A message block in, a person's word on it out: the custom element `<permission-prompt>`, for the host's own document.
import { CALM, left, say } from "../../lib/dom.ts";
import { oneLine, visible } from "../../lib/visible.ts";
import { block as read } from "./block.ts";
import type { Block } from "./block.ts";
import { allowWords, answer, denyWords, narrowest, needsTick } from "./choice.ts";
import type { Choice, LeftOut } from "./choice.ts";
import { prompt } from "./view.ts";
import type { Shown } from "./view.ts";

/** What a person reads whose press came too soon. */
const EARLY = "That did not count, because this request changed a moment ago. Press again.";

/**
 * Asks a person. `block` takes the block of a chat. Where its `bailiwick.preview` says that there is one, the host shows
 * what the call would do (`view`) and says when that is there (`settled`), and what of it is left out (`leftOut`).
 * `permission-granted` and `permission-denied` are told once, with `{id, answer, remember}`; after `failed` once more.
 */
export class PermissionPrompt extends HTMLElement {
  #block: Block | undefined;
  // These are set with the block.
  #choice!: Choice;
  #shown: Shown | undefined;
  #said: "granted" | "denied" | undefined;
  #why!: string;
  #settled!: boolean;
  /** Not all of what is shown is left out. */
  #some!: boolean;
  #since = 0;
  #ticking: ReturnType<typeof setInterval> | undefined;
  #calming: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    super();
    this.addEventListener("keydown", (event) => {
      // What ends the composing of a word is no answer, nor is what leaves a field.
      const field = (event.target as Element).matches("textarea,[type=number]");
      if (event.key === "Escape" && event.isTrusted && !event.isComposing && !field) this.#answer(false);
    });
  }

  connectedCallback(): void {
    this.role = "group";
    this.ariaLabel = "Permission request";
    this.#calm();
    document.addEventListener("visibilitychange", this.#calm);
    this.#ticking = setInterval(() => this.#update(), 1000);
  }

  disconnectedCallback(): void {
    clearInterval(this.#ticking);
    clearTimeout(this.#calming);
    document.removeEventListener("visibilitychange", this.#calm);
  }

  get block(): unknown {
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
      this.#some = true;
      this.#settled = !next.bailiwick?.preview;
      const shown = prompt(
        next,
        (change) => this.#choose(change),
        (allows) => this.#answer(allows),
      );
      this.#shown = shown;
      this.replaceChildren(...shown.all.filter((one) => one instanceof Node));
      this.#calm();
    } else if (before.status !== "pending") {
      // An end is an end.
      this.#block = before;
    }
    this.#update();
  }

  set view(view: Node) {
    this.#shown?.preview.replaceChildren(view);
  }

  set settled(value: boolean) {
    this.#settled = value;
    // What moves the buttons must not be what is pressed.
    this.#calm();
  }

  /** Hunks that are not to be made; nothing if none would be. */
  set leftOut(out: readonly LeftOut[] | undefined) {
    this.#some = !!out;
    // A grant for later calls would let through what is left out of this one.
    this.#choose(out?.length === 0 ? { out } : { out: out ?? [], rung: 0, time: "once", descendants: false });
  }

  /** The answer had no effect; a person may give another. */
  failed(why: string): void {
    this.#said = undefined;
    this.#why = why;
    this.#calm();
  }

  /** What a person does counts from a while after now on. */
  readonly #calm = (): void => {
    this.#since = performance.now();
    clearTimeout(this.#calming);
    this.#calming = setTimeout(() => this.#update(), CALM);
    this.#update();
  };

  /** What can be pressed came or changed a moment ago. */
  #isEarly(): boolean {
    return performance.now() - this.#since < CALM;
  }

  #choose(change?: Partial<Choice> | false): void {
    // The tick is for what was shown when it was made.
    if (change) this.#choice = { ...this.#choice, sure: false, ...(change.time === "once" && { descendants: false }), ...change };
    this.#update();
  }

  /** Until when there is time to answer, as `left` has it. */
  #left(): string {
    return left(this.#block?.bailiwick?.expires_at ?? Infinity);
  }

  #may(allows: boolean): boolean {
    const open = this.#block?.status === "pending" && !this.#said && this.#left();
    const unsure = needsTick(this.#block?.bailiwick, this.#choice) && !this.#choice.sure;
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
    const detail = { id: block.tool_call.id, answer: answer(block.bailiwick, choice, allows), remember: allows && choice.time !== "once" };
    this.dispatchEvent(new CustomEvent(`permission-${this.#said}`, { detail }));
  }

  #update(): void {
    const block = this.#block;
    const shown = this.#shown;
    if (!block || !shown) return;
    const { bailiwick: own, status } = block;
    const choice = this.#choice;
    const open = this.#may(false);
    const time = this.#left();
    for (const control of shown.controls) control(choice, open);
    shown.sure.hidden = !needsTick(own, choice);
    say(shown.yes, allowWords(own, choice));
    shown.yes.disabled = !this.#may(true);
    say(shown.no, denyWords(choice));
    shown.no.disabled = !open;
    this.toggleAttribute("data-early", this.#isEarly());
    say(shown.effect, visible(own ? `Covers: ${own.rungs[choice.rung]?.covers ?? "exactly this"}.` : ""));
    say(shown.clock, open && own ? `Ends in ${time}` : "");
    const late = "Nobody answered in time, so it was not allowed.";
    const by = this.#said === status ? "" : "Answered elsewhere: ";
    const words = {
      pending: this.#said ? "Sending…" : time ? this.#why : late,
      granted: `${by}allowed ${block.extra.grantedPermissions?.join(", ") ?? ""}`,
      denied: `${by}denied`,
      expired: late,
      cancelled: "The call is gone; nothing is left to answer.",
    }[status];
    say(shown.status, oneLine(words));
    shown.status.hidden = !words;
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
