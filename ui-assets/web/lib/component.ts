// Connects signals to Preact with its public interface: every component renders again when a signal that it has read
// changes. `@preact/signals` and `preact/hooks` do the same with 6 kB more, which the file browser cannot afford.
import { effect, signal } from "@preact/signals-core";
import type { Signal } from "@preact/signals-core";
import { Component, Fragment, h as create } from "preact";
import type { ComponentChild, ComponentType, VNode } from "preact";

export { Fragment };

type Props = Readonly<Record<string, unknown>>;

let current: Reactive<object> | undefined;

const differ = (one: Props, other: Props): boolean => Object.keys({ ...one, ...other }).some((key) => one[key] !== other[key]);

/** A component that renders again when a signal that `view` has read changes. */
export abstract class Reactive<P extends object> extends Component<P> {
  /** Values that the component created with `own`, in order. */
  readonly slots: unknown[] = [];
  /** Position of the next call of `own` in this render. */
  slot = 0;
  /** Run once the component is in the document. */
  readonly starts: (() => void | (() => void))[] = [];
  readonly #ends: (void | (() => void))[] = [];
  #isStale = false;
  #stop = (): void => undefined;

  protected abstract view(props: P): ComponentChild;

  override componentDidMount(): void {
    for (const start of this.starts.splice(0)) this.#ends.push(start());
  }

  override componentWillUnmount(): void {
    this.#stop();
    for (const end of this.#ends) end?.();
  }

  override shouldComponentUpdate(next: P): boolean {
    return this.#isStale || differ(this.props as Props, next as Props);
  }

  override render(): ComponentChild {
    this.#stop();
    this.#isStale = false;
    this.slot = 0;
    let rendered: ComponentChild;
    let isFirst = true;
    const before = current;
    current = this;
    try {
      this.#stop = effect(() => {
        if (isFirst) rendered = this.view(this.props);
        else {
          this.#isStale = true;
          this.setState({});
        }
        isFirst = false;
      });
    } finally {
      current = before;
    }
    return rendered;
  }
}

/** A value of the component that is being rendered, made by its first render. Call it in the same order each time. */
export function own<T>(make: () => T): T {
  const of = current as Reactive<object>;
  if (of.slot === of.slots.length) of.slots.push(make());
  return of.slots[of.slot++] as T;
}

interface Local {
  <T>(): Signal<T | undefined>;
  <T>(value: T): Signal<T>;
}

/** A signal of the component that is being rendered. */
export const local: Local = <T>(value?: T) => own(() => signal(value));

/** Runs `act` once the component is in the document, and the function that it returns when the component is removed. */
export const onMount = (act: () => void | (() => void)): void => own(() => void current?.starts.push(act));

/** Runs `act` now and whenever a signal that it has read changes, while the component is in the document. */
export const watch = (act: () => void): void => onMount(() => effect(act));

interface View {
  (props: object): ComponentChild;
  /** Its component, once it is made. */
  component?: ComponentType;
}

/** The component of a function. */
const component = (view: View): ComponentType =>
  (view.component ??= class extends Reactive<object> {
    protected override view(props: object): ComponentChild {
      return view(props);
    }
  });

/** What JSX compiles to. The build imports it into every file. */
export function h(type: string | View | ComponentType, props: Props | null, ...children: ComponentChild[]): VNode {
  const isView = typeof type === "function" && type !== Fragment && !(type.prototype instanceof Component);
  return create((isView ? component(type as View) : type) as string, props, ...children);
}
