// API client of the console. The host and this page are from the same build, so responses are not validated; text from
// agents is shown as text only.

/** An operation on a file; other words may follow. */
export type Operation = "create" | "modify" | "delete" | "move" | "copy" | "make_directory" | (string & {});

/** The extra fields of a question, next to those of a permission block. */
export interface QuestionDetails {
  readonly run: string;
  readonly session: string;
  /** `RUN-NUMBER`. */
  readonly worker: string;
  readonly agent: readonly string[];
  readonly intent: string;
  readonly needs: readonly string[];
  readonly asked_because: readonly string[];
  readonly trust: "own" | "known" | "unknown";
  /** What the call does: verb, object and count. */
  readonly sentence: string;
  readonly sensitive: boolean;
  /** Whether a permanent grant outlasts the server. */
  readonly stores_grants: boolean;
  /** The worst first. */
  readonly dangers: readonly { readonly kind: string; readonly level: string; readonly text: string }[];
  /** The first 20 files that the call affects. */
  readonly files: readonly { readonly path: string; readonly op: Operation; readonly bytes: number | null }[];
  readonly files_total: number;
  readonly bytes_total: number | null;
  readonly divisible: boolean;
  readonly preview: { readonly files: number; readonly added: number; readonly removed: number } | null;
  /** Whether it can be allowed together with other questions. */
  readonly batchable: boolean;
  /** Size of the full arguments, if only their beginning is included. */
  readonly arguments_bytes: number | null;
  readonly asked_at: number;
  readonly expires_at: number;
  /** Number of equal calls that wait for the answer. */
  readonly waiting: number;
}

export interface Question {
  readonly tool_call: { readonly id: string; readonly name: string };
  readonly extra: object;
  readonly bailiwick: QuestionDetails;
}

export interface Agent {
  /** `RUN-NUMBER`. */
  readonly worker: string;
  readonly run: string;
  readonly name: string;
  /** Its path, such as `main/tests`. */
  readonly agent: string;
  readonly parent: string | null;
  readonly session: string;
  readonly access: "read" | "interact" | "full";
  readonly paused: boolean;
  /** Number of open calls. */
  readonly calls: number;
  /** Number of open questions. */
  readonly questions: number;
  /** Number of changed paths. */
  readonly changed: number;
  readonly started_at: number;
}

/** Whether the changes of a call can be undone, or were. */
export type UndoState = "possible" | "undone";

/** A question that ended. */
export interface Outcome {
  readonly question: string;
  readonly run: string;
  readonly worker: string;
  readonly agent: string;
  readonly sentence: string;
  readonly status: "granted" | "denied" | "expired" | "cancelled";
  /** Who or what ended it. */
  readonly by: string;
  readonly at: number;
  readonly call: string | null;
  /** `null` if the call did not run. */
  readonly result: {
    readonly state: "running" | "applied" | "failed" | "stale" | "denied" | "cancelled";
    readonly code: string | null;
    readonly message: string | null;
    readonly files: number;
  } | null;
  readonly undo: UndoState | null;
}

export interface Grant {
  readonly grant: string;
  readonly run: string;
  readonly reach: "exact" | "beneath";
  readonly operations: readonly string[];
  /** Description of what it allows. */
  readonly covers: string;
  readonly pattern: string;
  /** `null` stands for all verbs. */
  readonly verb: string | null;
  /** The agent path of the holder. */
  readonly agent: string;
  /** The options under which a person can filter for this grant. */
  readonly whose: readonly string[];
  readonly descendants: boolean;
  readonly uses_left: number | null;
  readonly expires_at: number | null;
  /** How long it lasts, such as `until the agent or its session ends`. */
  readonly lifetime: string;
  readonly given_at: number;
  readonly used: number;
  readonly used_at: number | null;
}

/** A denial of the same calls for the rest of a session. */
export interface Refusal {
  readonly run: string;
  readonly refusal: number;
  readonly agent: string;
  readonly session: string;
  /** Description of what is denied. */
  readonly refused: string;
}

export interface State {
  readonly version: number;
  readonly now: number;
  readonly sources: readonly {
    readonly run: string;
    readonly server: string;
    readonly roots: readonly string[];
    readonly templates: readonly { readonly name: string; readonly about: string }[];
    readonly recorded: boolean;
    /** Whether permanent grants outlast the server. */
    readonly stores_grants: boolean;
  }[];
  readonly agents: readonly Agent[];
  /** Oldest first. */
  readonly questions: readonly Question[];
  /** Newest first. */
  readonly outcomes: readonly Outcome[];
  readonly grants: readonly Grant[];
  readonly refusals: readonly Refusal[];
  /** Number of items omitted from each list. */
  readonly omitted: Readonly<Record<"questions" | "grants" | "refusals", number>>;
}

/** The status of a question, or the reason why an answer had no effect. */
export interface Standing {
  readonly question: string;
  readonly status?: "pending" | "granted" | "denied" | "expired" | "cancelled";
  readonly message?: string;
}

export interface Suggested {
  readonly suggestion: {
    readonly run: string;
    readonly agent: string;
    readonly pattern: string;
    /** Description of what the rule allows. */
    readonly covers: string;
    readonly spares: number;
    readonly holder: unknown;
    readonly lifetime: unknown;
  } | null;
}

export interface History {
  readonly chain: { readonly state: string };
  /** Description of the state of the hash chain. */
  readonly words: string;
  readonly entries: readonly {
    readonly at: number;
    readonly agent: string;
    readonly tool?: string;
    readonly decision?: string;
    readonly by: string;
    readonly entry: string;
    readonly needs?: readonly string[];
    readonly patterns?: readonly (string | { readonly pattern: string; readonly reach: string; readonly operations: readonly string[] })[];
    readonly pattern?: string;
    readonly scopes?: readonly string[];
    readonly server?: string;
    readonly issuer?: string;
    readonly tool_there?: string;
    readonly note?: string;
    readonly rule?: string;
    readonly grant?: number;
    readonly cause?: string;
    readonly origin?: string;
    /** For calls without a question: the outcome, and what allowed the call. */
    readonly outcome?: string;
    readonly code?: string;
    readonly message?: string;
    /** The call began to take effect, and failed or has no recorded end. */
    readonly begun?: boolean;
    readonly grants?: readonly number[];
    readonly brought?: readonly string[];
    readonly changes?: readonly string[];
  }[];
  readonly total: number;
  readonly tally: Readonly<Record<"granted" | "denied" | "expired" | "cancelled" | "open", number>>;
  readonly unused: readonly { readonly grant: number; readonly pattern?: string }[];
  readonly agents: readonly string[];
  readonly tools: readonly string[];
  readonly sessions: readonly string[];
  readonly runs: readonly number[];
}

/** The host rejected the secret from this page's address. */
export class Stranger extends Error {}

const found = location.hash.slice(1);
if (found) {
  // Removes the secret from the address and the browser history, but keeps it across reloads.
  sessionStorage.setItem("secret", found);
  history.replaceState(null, "", location.pathname + location.search);
}
// Pasting another address with a secret only changes the hash, so reload the page.
onhashchange = () => location.reload();
const authorization = `Bearer ${sessionStorage.getItem("secret") ?? ""}`;

/** Sends a request to the host: GET, or POST with a `body`. */
export async function fetched(path: string, body?: unknown): Promise<Response> {
  const headers = { authorization, "content-type": "application/json" };
  const response = await fetch(`/api/${path}`, { method: body ? "POST" : "GET", headers, body: JSON.stringify(body) ?? null }).catch(() => {
    throw new Error("The host cannot be reached.");
  });
  if (response.status === 401) throw new Stranger("This address is no longer valid. Open the address that the host printed last.");
  if (!response.ok) throw new Error(((await response.json()) as { message: string }).message);
  return response;
}

/** Sends a request and parses the JSON response. */
export const host = async <T>(path: string, body?: unknown): Promise<T> => (await fetched(path, body)).json() as Promise<T>;
