// Icons, drawn by the style sheet.
export type Sign = "directory" | "file" | "link" | "special" | "lock" | "back" | "again" | "find";

export const Icon = ({ name, label }: { readonly name: Sign; readonly label?: string }) => <i class={`icon ${name}`} {...(label && { role: "img", "aria-label": label })} />;

interface SignProps {
  readonly name: "again" | "back";
  readonly title: string;
  readonly press: () => void;
}

export const IconButton = ({ name, title, press }: SignProps) => (
  <button class={`sign ${name}`} title={title} onClick={press}><Icon name={name} /></button>
);
