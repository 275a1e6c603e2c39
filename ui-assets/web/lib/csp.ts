// What a server says its page must reach in, the policy of the page out.
import { listOf } from "./kinds.ts";

/**
 * The policy for `_meta.ui.csp`; without it nothing is reached.
 *
 * What is for `default-src` alone may be `data:` and `blob:`, which name no site.
 */
export function policyOf(csp: unknown): string {
  const from = (name: string): string => {
    const all = listOf(Object(csp)[`${name}Domains`]);
    return all.filter((one) => /^(http|ws)s?:\/\/(\*\.)?[\w.-]+(:\d+)?$/.test(String(one))).join(" ");
  };
  const files = from("resource");
  const code = `'unsafe-inline' ${files}`;
  return `default-src data: blob: ${files};script-src ${code};style-src ${code};connect-src ${from("connect")};frame-src ${from("frame")};base-uri ${from("baseUri")};object-src;form-action`;
}

/** The `allow` of a frame for `_meta.ui.permissions`. */
export function allowed(permissions: unknown): string {
  return Object.keys(Object(permissions))
    .filter((name) => /^(camera|microphone|geolocation|clipboardWrite)$/.test(name))
    .join(";")
    .replace("W", "-w");
}
