// Small components that all pages share. Text is inserted as text only.
import type { ButtonHTMLAttributes, ComponentChildren } from "preact";

import { escaped, message, oneLine, visible } from "./visible.ts";

/** Text from a server or agent on one line, isolated from the direction of the surrounding text. */
export const Name = ({ text, most }: { readonly text: string; readonly most?: number | undefined }) => <bdi>{oneLine(text, most)}</bdi>;

/** The name of an agent. One that a client has given itself begins with `~`, and is quoted. */
export const Agent = ({ name, most }: { readonly name: string; readonly most?: number | undefined }) => {
  const own = name[0] === "~";
  return <b title={own ? "A program gave itself this name" : undefined}>{own && "“"}<Name text={name.replace("~", "")} most={most} />{own && "”"}</b>;
};

/** The name of an agent in a text, quoted as by `Agent`. */
export const quotedName = (name: string, most?: number): string => {
  const shown = oneLine(name.replace("~", ""), most);
  return name[0] === "~" ? `“${shown}”` : shown;
};

export const Code = ({ text, class: look }: { readonly text: string; readonly class?: string }) => (
  <code class={look}><bdi>{visible(text)}</bdi></code>
);

/** Text in which escaped characters are marked. */
export const Marked = ({ text }: { readonly text: string }) => (
  <>
    {escaped(text).map((part, at) =>
      at % 2 ? (
        <span key={at} class="escape" title="A hidden or misleading character">{part}</span>
      ) : (
        part
      ),
    )}
  </>
);

/** An event handler that scripts cannot trigger. */
export const trusted =
  <E extends Event>(act: (event: E) => void) =>
  (event: E): void => {
    if (event.isTrusted) act(event);
  };

interface ButtonProps extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "onClick"> {
  readonly press: (event: MouseEvent) => void;
  readonly children: ComponentChildren;
}

/** A button that only a person can press. */
export const Button = ({ press, children, ...rest }: ButtonProps) => (
  <button type="button" {...rest} onClick={trusted(press)}>{children}</button>
);

interface TickProps {
  readonly type?: "checkbox" | "radio";
  readonly name?: string | undefined;
  readonly checked: boolean;
  readonly disabled?: boolean;
  readonly label?: string;
  readonly change: (on: boolean) => void;
}

/**
 * A checkbox that only a person can change. It listens for clicks because `change` is trusted even after a scripted
 * click.
 */
export const Tick = ({ type = "checkbox", change, label, ...rest }: TickProps) => (
  <input
    type={type}
    aria-label={label}
    {...rest}
    onClick={(event) => {
      if (event.isTrusted) change(event.currentTarget.checked);
      else event.preventDefault();
    }}
  />
);

/** An alert that shows an error. */
export const Trouble = ({ error }: { readonly error: unknown }) => (
  <p class="notice bad" role="alert">{oneLine(message(error), 400)}</p>
);
