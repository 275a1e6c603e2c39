// The lines of a unified diff in, what each of them is out.

export type Mark = "head" | "added" | "removed" | "";

/** Within a hunk its head says how many lines there are: one that is added and begins with `++ ` is no head of a file. */
export function marks(lines: readonly string[]): Mark[] {
  let old = 0;
  let now = 0;
  return lines.map((line) => {
    const [first] = line;
    if (old < 1 && now < 1 && /^(@@|--- |\+\+\+ |diff )/.test(line)) {
      const [, gone = 1, come = 1] = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/.exec(line) ?? [];
      if (first === "@") [old, now] = [Number(gone), Number(come)];
      return "head";
    }
    if (first !== "\\") {
      if (first !== "+") old -= 1;
      if (first !== "-") now -= 1;
    }
    return first === "+" ? "added" : first === "-" ? "removed" : "";
  });
}
