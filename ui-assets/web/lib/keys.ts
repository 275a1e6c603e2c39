// Keyboard shortcuts of single keys.

/** Whether the key is a person's shortcut: not part of a text or a list, without modifiers, and no repetition. */
export function isShortcut(event: KeyboardEvent): boolean {
  const { isTrusted, isComposing, repeat, ctrlKey, metaKey, altKey, target } = event;
  const typing = (target as Element | null)?.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable], dialog");
  return isTrusted && !(isComposing || repeat || ctrlKey || metaKey || altKey || typing);
}
