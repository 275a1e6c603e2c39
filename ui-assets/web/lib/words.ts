// Short texts about files and numbers.
import { flat, visible } from "./visible.ts";

export const counted = (count: number, one: string, several = `${one}s`): string => `${count} ${count === 1 ? one : several}`;

const UNITS = ["bytes", "kB", "MB", "GB", "TB"];

/** A size such as `34 kB`. */
export function size(bytes: number): string {
  let unit = 0;
  let left = bytes;
  for (; left >= 1000 && unit < UNITS.length - 1; unit += 1) left /= 1000;
  if (unit === 0) return counted(bytes, "byte");
  return `${left < 10 ? left.toFixed(1) : Math.round(left)} ${UNITS[unit]}`;
}

/** What a planned operation will do. */
export const planned = (op: string): string => ({ modify: "change", make_directory: "create" })[op] ?? visible(op);

/** A path without hidden characters, cut in the middle, so that the name at its end stays. */
export function shortPath(path: string, most = 40): string {
  const shown = visible(flat(path));
  return shown.length > most ? `${shown.slice(0, most / 4)}…${shown.slice(1 - (most * 3) / 4)}` : shown;
}
