// The heading of what the detail pane shows.
import { createRef } from "preact";
import type { ComponentChildren } from "preact";

import { onMount, own } from "../../lib/component.ts";
import { takesFocus } from "./inbox.ts";

/** A heading that takes the focus if the person has chosen what it names. */
export function Heading({ children }: { readonly children: ComponentChildren }) {
  const heading = own(createRef<HTMLHeadingElement>);
  onMount(() => {
    if (takesFocus()) heading.current?.focus();
  });
  return <h2 tabIndex={-1} ref={heading}>{children}</h2>;
}
