// Runs a client's script with calls of third-party tools through the gateway, in place of the calls of file tools.
//
// node through_gateway.mjs SCRIPT PROGRAM ARGUMENT...
import { registerHooks } from "node:module";

const calls = new URL("gateway_calls.mjs", import.meta.url).href;
registerHooks({
  resolve: (specifier, context, next) => next(specifier === "./framework.mjs" ? calls : specifier, context),
});
await import(`./${process.argv[2]}`);
