// JSON-RPC 2.0 connection to another window.
import { isFields, isText } from "./json.ts";
import type { Fields } from "./json.ts";

export type Id = string | number;

/** An error with a JSON-RPC error code. */
export type RpcError = Error & { readonly code: number; readonly data?: unknown };

/** A JSON-RPC message: a request, a notification (without `id`), a result or an error. */
export type Message =
  | { readonly method: string; readonly params: Fields; readonly id?: Id | undefined }
  | { readonly id: Id; readonly result: Fields; readonly error?: undefined }
  | { readonly id: Id; readonly error: RpcError; readonly result?: undefined };

export const METHOD_NOT_FOUND = -32601;
export const INVALID_PARAMS = -32602;
export const INTERNAL = -32603;

/** Maximum number of concurrent incoming requests; `ASKED` limits outgoing ones. */
const SERVED = 32;
const ASKED = 1000;
const TOO_MANY = "too many requests at once";

/** Notification methods that both sides use. */
export const CANCELLED = "notifications/cancelled";
export const TOOLS_CHANGED = "notifications/tools/list_changed";

export const rpcError = (code: number, message: string, data?: unknown): RpcError =>
  Object.assign(new Error(message), { code, data });

/** Throws an error; usable in an expression. */
export function fail(message: string, code = INTERNAL): never {
  throw rpcError(code, message);
}

/** Converts a thrown value to a JSON-RPC error object. */
const told = (error: Partial<RpcError> | undefined): Fields => ({ code: error?.code ?? INTERNAL, message: error?.message ?? String(error), data: error?.data });

/** Parses a JSON-RPC 2.0 message; returns `undefined` for anything else. */
export function parsed(data: unknown): Message | undefined {
  if (!isFields(data) || data.jsonrpc !== "2.0") return undefined;
  const { id, method, params, result, error } = data as Fields & { readonly id: Id };
  const known = isText(id) || typeof id === "number";
  if (isText(method) && (known || id === undefined)) return { method, params: isFields(params) ? params : {}, id };
  if (known && isFields(result)) return { id, result };
  if (known && isFields(error)) return { id, error: rpcError(Number(error.code), String(error.message), error.data) };
  return undefined;
}

export interface RequestOptions {
  /** Timeout in milliseconds. */
  readonly timeout?: number;
}

/** Additional arguments of a request handler. */
export interface Extra {
  /** Aborted when the request is cancelled or the connection closes. */
  readonly signal: AbortSignal;
}

export interface Peer {
  ask(method: string, params: Fields, timeout: number): Promise<Fields>;
  notify(method: string, params: Fields): void;
  hear(message: Message): void;
  /** Rejects pending and later requests with `reason`. */
  close(reason: string): void;
}

/** Creates a connection that sends with `post`, answers requests with `serve` and passes on notifications. */
export function peer(
  post: (message: Fields) => void,
  serve: (method: string, params: Fields, extra: Extra) => Promise<Fields> | Fields,
  noticed: (method: string, params: Fields) => void,
): Peer {
  const asked = new Map<Id, (error?: Error, result?: Fields) => void>();
  const serving = new Map<unknown, AbortController>();
  let last = 0;
  let ended: Error | undefined;
  const send = (message: Fields): void => {
    if (!ended) post({ jsonrpc: "2.0", ...message });
  };

  async function answer(id: Id, method: string, params: Fields): Promise<void> {
    // Ignore a request whose id is already in use.
    if (serving.has(id)) return;
    const abort = new AbortController();
    let message: Fields;
    try {
      if (serving.size >= SERVED) fail(TOO_MANY);
      serving.set(id, abort);
      message = { id, result: await serve(method, params, abort) };
    } catch (error) {
      message = { id, error: told(error as Partial<RpcError> | undefined) };
    }
    if (!abort.signal.aborted) send(message);
    serving.delete(id);
  }

  return {
    notify: (method, params) => send({ method, params }),
    ask: (method, params, timeout) =>
      new Promise((resolve, reject) => {
        if (ended) throw ended;
        if (asked.size >= ASKED) fail(TOO_MANY);
        const id = ++last;
        const timer = setTimeout(() => {
          const reason = `no answer to \`${method}\` within ${Math.round(timeout / 10) / 100} s`;
          send({ method: CANCELLED, params: { requestId: id, reason } });
          settle(new Error(reason));
        }, timeout);
        const settle = (error?: Error, result: Fields = {}): void => {
          clearTimeout(timer);
          asked.delete(id);
          if (error) reject(error);
          else resolve(result);
        };
        asked.set(id, settle);
        send({ id, method, params });
      }),
    hear(message) {
      if (!("method" in message)) asked.get(message.id)?.(message.error, message.result);
      else if (message.id !== undefined) void answer(message.id, message.method, message.params);
      else if (message.method === CANCELLED) serving.get(message.params.requestId)?.abort();
      else noticed(message.method, message.params);
    },
    close(reason) {
      ended = new Error(reason);
      serving.forEach((abort) => abort.abort());
      asked.forEach((settle) => settle(ended));
    },
  };
}
