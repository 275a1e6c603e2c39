// Messages of another window in, calls of handlers out; requests of this window out, their answers in.

export type Fields = Readonly<Record<string, unknown>>;
export type Id = string | number;

/** A JSON-RPC message: a request, a notification (without `id`), a result or an error. */
export type Message =
  | { readonly method: string; readonly params: Fields; readonly id?: Id | undefined }
  | { readonly id: Id; readonly result: Fields }
  | { readonly id: Id; readonly error: RpcError };

export const METHOD_NOT_FOUND = -32601;
export const INVALID_PARAMS = -32602;
export const INTERNAL = -32603;

/** An error with a JSON-RPC code, as it goes over the wire. */
export class RpcError extends Error {
  readonly code: number;
  readonly data: unknown;
  constructor(code: number, message: string, data?: unknown) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

export function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const isId = (id: unknown): id is Id => typeof id === "string" || typeof id === "number";

/** What a message of a window says, or nothing if it is no JSON-RPC 2.0 message. */
export function parsed(data: unknown): Message | undefined {
  if (!isFields(data) || data.jsonrpc !== "2.0") return undefined;
  const { id, method, params, result, error } = data;
  if (typeof method === "string" && (isId(id) || id === undefined)) return { method, params: isFields(params) ? params : {}, id };
  if (!isId(id)) return undefined;
  if (isFields(result)) return { id, result };
  return isFields(error) ? { id, error: new RpcError(Number(error.code), String(error.message), error.data) } : undefined;
}

export interface RequestOptions {
  /** Milliseconds until the request fails. */
  readonly timeout?: number;
  readonly signal?: AbortSignal;
}

/** What a handler of requests is told beside the parameters. */
export interface Extra {
  readonly requestId: Id;
  /** Aborted when the other side takes its request back, or the connection ends. */
  readonly signal: AbortSignal;
}

export interface Peer {
  request(method: string, params: Fields, timeout: number, signal?: AbortSignal): Promise<Fields>;
  notify(method: string, params: Fields): void;
  receive(message: Message): void;
  /** Fails what is under way, and everything asked later, with `reason`. */
  close(reason: string): void;
}

/** A connection that posts by `post`, answers requests by what `serve` gives or throws, and passes notifications on. */
export function peer(
  post: (message: Fields) => void,
  serve: (method: string, params: Fields, extra: Extra) => Promise<Fields> | Fields,
  noticed: (method: string, params: Fields) => void,
): Peer {
  const asked = new Map<Id, (error: Error | undefined, result?: Fields) => void>();
  const serving = new Map<Id, AbortController>();
  let last = 0;
  let ended: Error | undefined;
  const send = (message: Fields): void => {
    if (!ended) post({ jsonrpc: "2.0", ...message });
  };
  const notify = (method: string, params: Fields): void => send({ method, params });

  async function answer(id: Id, method: string, params: Fields): Promise<void> {
    const abort = new AbortController();
    serving.set(id, abort);
    const { signal } = abort;
    const message: Fields = await (async () => serve(method, params, { requestId: id, signal }))().then(
      (result) => ({ id, result }),
      ({ code = INTERNAL, message, data }) => ({ id, error: { code, message: message ?? "failed", data } }),
    );
    if (!signal.aborted) send(message);
    if (serving.get(id) === abort) serving.delete(id);
  }

  return {
    notify,
    request: (method, params, timeout, signal) =>
      new Promise((resolve, reject) => {
        if (ended) return reject(ended);
        const id = ++last;
        const settle = (error: Error | undefined, result: Fields = {}): void => {
          clearTimeout(timer);
          signal?.removeEventListener("abort", stop);
          asked.delete(id);
          if (error) reject(error);
          else resolve(result);
        };
        const cancel = (error: Error): void => {
          notify("notifications/cancelled", { requestId: id, reason: error.message });
          settle(error);
        };
        const stop = (): void => cancel(signal?.reason);
        const timer = setTimeout(() => cancel(new Error(`no answer to \`${method}\` within ${timeout / 1000} s`)), timeout);
        asked.set(id, settle);
        send({ id, method, params });
        signal?.addEventListener("abort", stop);
        if (signal?.aborted) stop();
      }),
    receive(message) {
      if (!("method" in message)) asked.get(message.id)?.("error" in message ? message.error : undefined, "result" in message ? message.result : {});
      else if (message.id !== undefined) void answer(message.id, message.method, message.params);
      else if (message.method === "notifications/cancelled") serving.get(message.params.requestId as Id)?.abort();
      else noticed(message.method, message.params);
    },
    close(reason) {
      ended = new Error(reason);
      for (const abort of serving.values()) abort.abort();
      for (const settle of [...asked.values()]) settle(ended);
    },
  };
}
