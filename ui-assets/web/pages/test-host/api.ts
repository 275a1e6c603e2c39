// API client of the test host. The token is read from the URL hash and kept in this tab.
import { at, string, stringify, text } from "./json.ts";

const KEPT = "token";
if (location.hash !== "") {
  sessionStorage.setItem(KEPT, location.hash.slice(1));
  history.replaceState(undefined, "", location.pathname);
}
const token = sessionStorage.getItem(KEPT) ?? "";

/** Calls the host's API; an error response is thrown with its message. */
export async function ask(what: string, body: unknown): Promise<unknown> {
  const answer = await fetch(`/api/${what}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: stringify(body),
  });
  if (answer.status === 401) throw new Error("the token is missing; open the URL that bailiwick printed");
  const said: unknown = await answer.json();
  if (!answer.ok) throw new Error(text(said, "message") ?? `the host answered ${answer.status}`);
  return said;
}

/** Sends a request to the server; returns the full response, including errors. */
export const request = (method: string, params: unknown): Promise<unknown> => ask("request", { method, params });

/** The message of an error response. */
export function errorOf(response: unknown): string | undefined {
  const error = at(response, "error");
  return error === undefined ? undefined : `${String(at(error, "code"))}: ${string(error, "message")}`;
}

/** The result of a request; throws if the server returns an error. */
export async function result(method: string, params: unknown): Promise<unknown> {
  const response = await request(method, params);
  const error = errorOf(response);
  if (error) throw new Error(error);
  return at(response, "result");
}
