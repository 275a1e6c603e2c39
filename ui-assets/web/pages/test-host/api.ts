// Requests of the page in, the host's answers out. The token comes behind `#` of the address, and stays in this tab.
import { at, string, text } from "./json.ts";

const KEPT = "token";
if (location.hash !== "") {
  sessionStorage.setItem(KEPT, location.hash.slice(1));
  history.replaceState(undefined, "", location.pathname);
}
const token = sessionStorage.getItem(KEPT) ?? "";

/** Asks the host for something; what it refuses is an error in its words. */
export async function ask(what: string, body: unknown): Promise<unknown> {
  const answer = await fetch(`/api/${what}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  if (answer.status === 401) throw new Error("this address lacks its token; open the one that the host printed");
  const said: unknown = await answer.json();
  if (!answer.ok) throw new Error(text(said, "message") ?? `the host answered ${answer.status}`);
  return said;
}

/** Sends a request to the server; its whole response, an error too. */
export const request = (method: string, params: unknown): Promise<unknown> => ask("request", { method, params });

/** The words of an error response. */
export function errorOf(response: unknown): string | undefined {
  const error = at(response, "error");
  return error === undefined ? undefined : `${String(at(error, "code"))}: ${string(error, "message")}`;
}

/** The result of a request; an error of the server is thrown. */
export async function result(method: string, params: unknown): Promise<unknown> {
  const response = await request(method, params);
  const error = errorOf(response);
  if (error) throw new Error(error);
  return at(response, "result");
}
