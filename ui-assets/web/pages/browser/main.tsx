import { createSignal } from "solid-js";
import { mount } from "../../lib/solid-dom.ts";
function App() {
  const [n, set] = createSignal(0);
  return <button onClick={() => set(n() + 1)}>Pressed {n()} times</button>;
}
mount(() => <App />, document.getElementById("app") ?? document.body);
