// Small user interface components of the test host.
import type { ButtonHTMLAttributes, ComponentChildren, TargetedInputEvent } from "preact";

import { Button as TrustedButton } from "../../lib/ui.tsx";
import { oneLine, visible } from "../../lib/visible.ts";

const MOST_TEXT = 200_000;

/** Text from a server or agent on one line. */
export const said = (text: string, most = 300) => <bdi>{oneLine(text, most)}</bdi>;
export const code = (text: string, most = 300, look?: string) => <code class={look}>{said(text, most)}</code>;
export const notice = (text: string, kind = "") => <p class={`notice ${kind}`}>{said(text, 1_000)}</p>;
export const badge = (text: string, kind = "") => <span class={`badge ${kind}`}>{said(text, 80)}</span>;

interface Children {
  readonly children?: ComponentChildren;
}
export const Row = ({ children }: Children) => <div class="row">{children}</div>;
export const Quiet = ({ children }: Children) => <span class="quiet">{children}</span>;
/** Text whose changes screen readers announce. */
export const Live = ({ children }: Children) => (
  <span class="quiet" aria-live="polite">{children}</span>
);

interface ButtonProps extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "onClick" | "children"> {
  readonly press: () => unknown;
  /** Whether the button is pressed, if it can stay so. */
  readonly on?: boolean;
  readonly children: ComponentChildren;
}

/** A button that reacts to trusted presses only. */
export const Button = ({ press, on, ...rest }: ButtonProps) => <TrustedButton aria-pressed={on} {...rest} press={() => void press()} />;

/** The handler of typed or selected values. */
export const typing =
  (act: (now: string) => void) =>
  ({ currentTarget }: { readonly currentTarget: { readonly value: string } }): void =>
    act(currentTarget.value);

interface SearchProps {
  readonly label: string;
  readonly placeholder: string;
  readonly search: (words: string) => void;
}

export const Search = ({ label, placeholder, search }: SearchProps) => (
  <input type="search" aria-label={label} placeholder={placeholder} onInput={({ currentTarget }: TargetedInputEvent<HTMLInputElement>) => search(currentTarget.value.toLowerCase())} />
);

interface ChoiceProps {
  readonly label: string;
  readonly of: readonly string[];
  readonly now: string;
  readonly choose: (value: string) => void;
}

/** A labelled choice of one option. */
export const Choice = ({ label, of, now, choose }: ChoiceProps) => (
  <label class="pick">
    <Quiet>{label}</Quiet>
    <select value={now} onChange={typing(choose)}>
      {of.map((one) => (
        <option key={one} value={one}>{oneLine(one, 60)}</option>
      ))}
    </select>
  </label>
);

/** Preformatted text. */
export const Words = ({ text }: { readonly text: string }) => (
  <pre class="words" tabIndex={0}>
    {visible(text.slice(0, MOST_TEXT))}
    {text.length > MOST_TEXT && `\n… ${text.length - MOST_TEXT} characters more`}
  </pre>
);
