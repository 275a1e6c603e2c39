// A message block in, a person's word on it out: the custom element `<permission-prompt>`, for the host's own document.
import { oneLine, visible } from "../../lib/visible.ts";
import { block as read } from "./block.ts";
import type { Block } from "./block.ts";
import { allowWords, answer, denyWords, narrowest, needsTick } from "./choice.ts";
import type { Choice, LeftOut } from "./choice.ts";
import { prompt } from "./view.ts";
import type { Shown } from "./view.ts";

/** How long a prompt stands still before anything counts: what a person was typing is no answer. */
const CALM = 700;

/**
 * Asks a person. `block` takes the block of a chat. Where its `bailiwick.preview` says that there is one, the host shows
 * what the call would do (`view`) and says when that is there (`settled`), and what of it is left out (`leftOut`).
 * `permission-granted` and `permission-denied` are told once, with `{id, answer, remember}`; after `failed` once more.
 */
export class PermissionPrompt extends HTMLElement {
  #block: Block | undefined;
  #choice = narrowest;
  #shown: Shown | undefined;
  #said: "granted" | "denied" | undefined;
  #why = "";
  #settled = false;
  /** Not all of what is shown is left out. */
  #some = true;
  #since = 0;
  #ticking = 0;

  constructor() {
    super();
    this.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && event.isTrusted) this.#answer(false);
    });
  }

  connectedCallback(): void {
    this.role = "group";
    this.ariaLabel = "Permission request";
    this.#calm();
    document.addEventListener("visibilitychange", this.#calm);
    this.#ticking = window.setInterval(() => this.#update(), 1000);
  }

  disconnectedCallback(): void {
    clearInterval(this.#ticking);
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
      this.#settled = next.bailiwick?.preview === undefined;
      const { all, ...shown } = prompt(next, {
        choose: (change) => this.#choose(change),
        answer: (allows) => this.#answer(allows),
      });
      this.#shown = shown;
      this.replaceChildren(...all);
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

  get settled(): boolean {
    return this.#settled;
  }

  set settled(value: boolean) {
    this.#settled = value;
    // What moves the buttons must not be what is pressed.
    this.#calm();
    this.#update();
  }

  /** Hunks that are not to be made; nothing if none would be. */
  set leftOut(out: readonly LeftOut[] | undefined) {
    this.#some = out !== undefined;
    // A grant for later calls would let through what is left out of this one.
    this.#choose(out?.length === 0 ? { out } : { out: out ?? [], rung: 0, time: "once", descendants: false });
  }

  /** The answer had no effect; a person may give another. */
  failed(why: string): void {
    this.#said = undefined;
    this.#why = why;
    this.#calm();
    this.#update();
  }

  /** What a person does counts from a while after now on. */
  readonly #calm = (): void => {
    this.#since = performance.now();
  };

  #choose(change: Partial<Choice> | undefined): void {
    // The tick is for what was shown when it was made.
    if (change) this.#choice = { ...this.#choice, sure: false, ...(change.time === "once" && { descendants: false }), ...change };
    this.#update();
  }

  #left(): number {
    return Math.ceil(((this.#block?.bailiwick?.expires_at ?? Infinity) - Date.now()) / 1000);
  }

  #isOpen(): boolean {
    return this.#block?.status === "pending" && !this.#said && this.#left() > 0;
  }

  #mayAllow(): boolean {
    const unsure = needsTick(this.#block?.bailiwick, this.#choice) && !this.#choice.sure;
    return this.#isOpen() && this.#settled && this.#some && !unsure;
  }

  #answer(allows: boolean): void {
    const block = this.#block;
    if (!block || performance.now() - this.#since < CALM || !(allows ? this.#mayAllow() : this.#isOpen())) return;
    this.#said = allows ? "granted" : "denied";
    this.#why = "";
    this.#update();
    const remember = allows && this.#choice.time !== "once";
    const detail = { id: block.tool_call.id, answer: answer(block.bailiwick, this.#choice, allows), remember };
    this.dispatchEvent(new CustomEvent(`permission-${this.#said}`, { detail }));
  }

  #update(): void {
    const block = this.#block;
    const shown = this.#shown;
    if (!block || !shown) return;
    const { bailiwick: own, status } = block;
    const choice = this.#choice;
    const open = this.#isOpen();
    for (const control of shown.controls) control(choice, open);
    shown.sure.hidden = !needsTick(own, choice);
    shown.yes.textContent = allowWords(own, choice);
    shown.yes.disabled = !this.#mayAllow();
    shown.no.textContent = denyWords(choice);
    shown.no.disabled = !open;
    shown.effect.textContent = visible(own ? `Covers: ${own.rungs[choice.rung]?.covers ?? "exactly this"}.` : "");
    const left = this.#left();
    shown.clock.textContent = open && own ? `Ends in ${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}` : "";
    const late = "Nobody answered in time, so it was not allowed.";
    const by = this.#said === status ? "" : "Answered elsewhere: ";
    const words = {
      pending: this.#said ? "Sending…" : left > 0 ? this.#why : late,
      granted: `${by}allowed ${block.extra.grantedPermissions?.join(", ") ?? ""}`,
      denied: `${by}denied`,
      expired: late,
      cancelled: "The call is gone; nothing is left to answer.",
    }[status];
    shown.status.textContent = oneLine(words);
    shown.status.hidden = !words;
    this.dataset["status"] = status;
    this.ariaBusy = String(!this.#settled || (this.#said !== undefined && status === "pending"));
  }
}

declare global {
  interface HTMLElementTagNameMap {
    "permission-prompt": PermissionPrompt;
  }
}

customElements.define("permission-prompt", PermissionPrompt);
