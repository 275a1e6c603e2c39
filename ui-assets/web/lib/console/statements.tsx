// What an agent may do now, in plain words, with where each rule comes from.
import { oneLine } from "../visible.ts";
import { Code, Name } from "../ui.tsx";
import { counted } from "../words.ts";
import { until } from "./calls.ts";
import type { Statement } from "./calls.ts";

const VERDICTS = {
  allowed: ["Allowed", "Done without asking you."],
  asks: ["Asks you", "Each of these calls waits for your answer."],
  denied: ["Denied", "These calls fail."],
  protected: ["Sensitive: asks you", "These can run programs or steer agents. Only a rule for exactly that file allows a change."],
} as const;

const SOURCES: Readonly<Record<string, string>> = {
  configuration: "Configuration",
  parent: "From its parent",
  spawn: "Set when it started",
  client: "From its client",
  grant: "Rule you gave",
  built_in: "Built in",
};

function Row({ statement }: { readonly statement: Statement }) {
  const { text, source, operations, path, grant, expires_at, uses_left } = statement;
  const limits = [...(uses_left === null ? [] : [`${counted(uses_left, "use")} left`]), ...(expires_at === null ? [] : [until(expires_at)])];
  return (
    <li>
      <details>
        <summary>
          <Name text={text} most={400} />
          <span class="quiet from">{[SOURCES[source.kind] ?? source.kind, ...limits].map((one) => oneLine(one)).join(", ")}</span>
        </summary>
        <dl>
          <dt>Where it comes from</dt>
          <dd><Name text={source.text || (SOURCES[source.kind] ?? source.kind)} most={400} /></dd>
          {operations.length > 0 && <><dt>Operations</dt><dd>{oneLine(operations.join(", "))}</dd></>}
          {path !== null && <><dt>Path</dt><dd><Code text={path} /></dd></>}
          {grant !== null && <><dt>Rule</dt><dd><Code text={grant} /></dd></>}
        </dl>
      </details>
    </li>
  );
}

/** The statements by verdict. */
export function Statements({ all, level = "h3" }: { readonly all: readonly Statement[]; readonly level?: "h3" | "h4" }) {
  const Head = level as "h3";
  if (all.length === 0) return <p class="quiet">The host does not report what this agent may do.</p>;
  return (
    <div class="statements">
      {Object.entries(VERDICTS).map(([verdict, [words, about]]) => {
        const some = all.filter((one) => one.verdict === verdict);
        return (
          some.length > 0 && (
            <section key={verdict} class={`verdict ${verdict}`} aria-label={words}>
              <Head>{words}</Head>
              <p class="quiet">{about}</p>
              <ul class="plain">{some.map((one, at) => <Row key={at} statement={one} />)}</ul>
            </section>
          )
        );
      })}
    </div>
  );
}
