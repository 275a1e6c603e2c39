// Records requests and datagrams on a port, to detect data leaks.
import { createSocket } from "node:dgram";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface Recorder {
  readonly origin: string;
  readonly port: number;
  /**
   * `GET /path` or `datagram`, in order of arrival. Connections without a request are not recorded, because Chromium
   * may open them before it checks a policy.
   */
  readonly arrived: readonly string[];
  close(): Promise<void>;
}

export async function recorder(): Promise<Recorder> {
  const arrived: string[] = [];
  const server = createServer((request, response) => {
    arrived.push(`${request.method} ${request.url}`);
    response.writeHead(200, { "access-control-allow-origin": "*", "content-type": "text/html" }).end("<p>here");
  });
  server.on("upgrade", (request, socket) => {
    arrived.push(`${request.method} ${request.url}`);
    socket.destroy();
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as AddressInfo;
  const datagrams = createSocket("udp4", () => arrived.push("datagram"));
  await new Promise<void>((bound) => datagrams.bind(port, "127.0.0.1", bound));
  return {
    origin: `http://127.0.0.1:${port}`,
    port,
    arrived,
    async close() {
      datagrams.close();
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}
