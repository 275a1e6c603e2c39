// Messages of another window in, calls of handlers out; requests of this window out, their answers in.

export type Fields = Readonly<Record<string, unknown>>;

export type Message =
  | { readonly kind: "request"; readonly id: string | number; readonly method: string; readonly params: Fields }
  | { readonly kind: "notification"; readonly method: string; readonly params: Fields }
  | { readonly kind: "result"; readonly id: string | number; readonly result: Fields }
  | { readonly kind: "error"; readonly id: string | number; readonly error: RpcError };

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

/** What a message of a window says, or nothing if it is no JSON-RPC 2.0 message. */
export function parsed(data: unknown): Message | undefined {
  if (!isFields(data) || data.jsonrpc !== "2.0") return undefined;
  const { id, method, result, error } = data;
  const params = isFields(data.params) ? data.params : {};
  const known = typeof id === "string" || typeof id === "number";
  if (typeof method === "string") {
    if (known) return { kind: "request", id, method, params };
    return id === undefined ? { kind: "notification", method, params } : undefined;
  }
  if (!known) return undefined;
  if (isFields(result)) return { kind: "result", id, result };
  if (!isFields(error) || typeof error.message !== "string") return undefined;
  const code = typeof error.code === "number" ? error.code : INTERNAL;
  return { kind: "error", id, error: new RpcError(code, error.message, error.data) };
}

export interface RequestOptions {
  /** Milliseconds until the request fails. */
  readonly timeout?: number;
  readonly signal?: AbortSignal;
}

/** What a handler of requests is told beside the parameters. */
export interface Extra {
  readonly requestId: string | number;
  /** Aborted when the other side takes its request back, or the connection ends. */
  readonly signal: AbortSignal;
}

export interface Peer {
  request(method: string, params: Fields, options: RequestOptions & { timeout: number }): Promise<Fields>;
  notify(method: string, params: Fields): void;
  receive(message: Message): void;
  /** Fails what is under way, and everything asked later, with `reason`. */
  close(reason: string): void;
}

export interface Handlers {
  /** Posts a message to the other side. */
  send(message: Fields): void;
  /** Answers a request of the other side; what it throws is the answer too. */
  request(method: string, params: Fields, extra: Extra): Promise<Fields> | Fields;
  notification(method: string, params: Fields): void;
}

export function peer(handlers: Handlers): Peer {
  const asked = new Map<string | number, (answer: Fields | Error) => void>();
  const serving = new Map<string | number, AbortController>();
  let last = 0;
  let ended: string | undefined;
  const send = (message: Fields): void => {
    if (ended === undefined) handlers.send({ jsonrpc: "2.0", ...message });
  };
  const notify = (method: string, params: Fields): void => send({ method, params });

  async function serve(id: string | number, method: string, params: Fields): Promise<void> {
    const abort = new AbortController();
    serving.set(id, abort);
    try {
      const result = await handlers.request(method, params, { requestId: id, signal: abort.signal });
      if (!abort.signal.aborted) send({ id, result });
    } catch (error) {
      if (abort.signal.aborted) return;
      const message = error instanceof Error ? error.message : String(error);
      const code = error instanceof RpcError ? error.code : INTERNAL;
      const data = error instanceof RpcError && error.data !== undefined ? { data: error.data } : {};
      send({ id, error: { code, message, ...data } });
    } finally {
      if (serving.get(id) === abort) serving.delete(id);
    }
  }

  return {
    notify,
    request: (method, params, { timeout, signal }) =>
      new Promise((resolve, reject) => {
        if (ended !== undefined) return reject(new Error(ended));
        if (signal?.aborted) return reject(signal.reason);
        const id = ++last;
        const cancel = (reason: unknown): void => {
          notify("notifications/cancelled", { requestId: id, reason: String(reason) });
          settle(reason instanceof Error ? reason : new Error(String(reason)));
        };
        const aborted = (): void => cancel(signal?.reason);
        const timer = setTimeout(
          () => cancel(new Error(`\`${method}\` was not answered within ${timeout / 1000} s`)),
          timeout,
        );
        const settle = (answer: Fields | Error): void => {
          clearTimeout(timer);
          signal?.removeEventListener("abort", aborted);
          asked.delete(id);
          if (answer instanceof Error) reject(answer);
          else resolve(answer);
        };
        signal?.addEventListener("abort", aborted);
        asked.set(id, settle);
        send({ id, method, params });
      }),
    receive(message) {
      if (message.kind === "request") void serve(message.id, message.method, message.params);
      else if (message.kind === "result") asked.get(message.id)?.(message.result);
      else if (message.kind === "error") asked.get(message.id)?.(message.error);
      else if (message.method === "notifications/cancelled") {
        const id = message.params.requestId;
        if (typeof id === "string" || typeof id === "number") serving.get(id)?.abort();
      } else handlers.notification(message.method, message.params);
    },
    close(reason) {
      ended = reason;
      for (const abort of serving.values()) abort.abort();
      for (const settle of [...asked.values()]) settle(new Error(reason));
    },
  };
}
