// Descriptions of changes without lines: directories, binary files and others.

import { counted } from "../words.ts";
import type { Change, Contents, Entry } from "./change.ts";

/** A summary such as `2 files, 1 folder, 12 bytes`. */
export function counts({ files, directories, others, bytes }: Contents): string {
  const folders = directories ? `${counted(directories, "folder")}, ` : "";
  const links = others ? `${counted(others, "link or special file", "links or special files")}, ` : "";
  return `${counted(files, "file")}, ${folders}${links}${counted(bytes, "byte")}`;
}

/** The first entries, one per line, and the number of remaining ones. */
export function listing({ files, directories, others, first }: Contents): string[] {
  const lines = first.map(({ path, kind, bytes }) => (kind === "file" ? `${path} (${counted(bytes, "byte")})` : kind === "directory" ? `${path}/` : `${path} (${kind === "link" ? "link" : "special file"})`));
  const more = files + directories + others - first.length;
  return more > 0 ? [...lines, `… and ${more} more`] : lines;
}

/** Type and size of a binary file before and after. */
function binary(type: string | undefined, before: Entry, after: Entry): string {
  const side = ({ kind, bytes }: Entry): string => (kind === "file" ? counted(bytes, "byte") : "");
  const sides = [side(before), side(after)].filter((one, at, all) => one && all.indexOf(one) === at);
  return `Binary file (${type || "unknown type"}): ${sides.join(" → ")}`;
}

/** Why no lines are shown. */
export function reason({ op, before, after, hidden, large, binary: isBinary, binary_type, hunks, notes }: Change): string | undefined {
  if (op === "make_directory") return "Folder will be created.";
  if (before.kind === "directory" && op === "delete") return "Folder and its contents will be deleted.";
  if (hidden) return "The agent may not read the file, so it is not shown.";
  if (large) return "Too much changed to be shown line by line.";
  if (isBinary) return binary(binary_type, before, after);
  if (hunks.length > 0 || notes?.length) return undefined;
  return op === "create" || op === "delete" ? "The file is empty." : "The content stays as it is.";
}
