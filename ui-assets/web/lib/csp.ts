// Builds a Content Security Policy and an `allow` attribute from a page's declared domains and permissions.
import { listOf } from "./json.ts";
import type { Fields } from "./json.ts";

/**
 * The policy for `_meta.ui.csp`; without it, all network access is blocked. Sources that fall back to `default-src`
 * also allow `data:` and `blob:`, which cannot reach the network.
 */
export function policyOf(csp: unknown): string {
  const from = (name: string): string => {
    const all = listOf((csp as Fields | undefined)?.[`${name}Domains`]);
    return all.filter((one) => /^(http|ws)s?:\/\/(\*\.)?[\w.-]+(:\d+)?$/.test(one as string)).join(" ");
  };
  const files = from("resource");
  const code = `'unsafe-inline' ${files}`;
  return `default-src data: blob: ${files};script-src ${code};style-src ${code};connect-src ${from("connect")};frame-src ${from("frame")};base-uri ${from("baseUri")};object-src;form-action`;
}

/** The frame's `allow` attribute for `_meta.ui.permissions`. */
export const allowed = (permissions: unknown): string =>
  Object.keys(permissions ?? {})
    .filter((name) => /^(camera|microphone|geolocation|clipboardWrite)$/.test(name))
    .join(";")
    .replace("W", "-w");
