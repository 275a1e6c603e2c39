// Classifies the lines of a unified diff.

export type Mark = "head" | "added" | "removed" | "";

/** Uses the line counts of the hunk header, so that an added line such as `++ x` is not mistaken for a file header. */
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
