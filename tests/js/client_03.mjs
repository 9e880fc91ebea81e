// The JavaScript SDK of A2A 0.3 as a client: a command on each line of stdin, what came of it on each line of stdout.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// The packages are installed in the current directory, which is not where this file is.
const require = createRequire(`${process.cwd()}/`);
const sdk = require("a2a-js-sdk-0.3/client");
const { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } = sdk;

const TRANSPORTS = { JSONRPC: JsonRpcTransportFactory, "HTTP+JSON": RestTransportFactory };
const ERRORS = Object.keys(sdk).filter((name) => name.endsWith("Error"));

const clients = new Map();
const streams = new Map();

async function connect({ url, transport }) {
  const key = `${transport} ${url}`;
  if (!clients.has(key)) {
    clients.set(key, await new ClientFactory({ transports: [new TRANSPORTS[transport]()] }).createFromUrl(url, ""));
  }
  return clients.get(key);
}

const COMMANDS = {
  async call({ method, params, headers, ...place }) {
    const client = await connect(place);
    return client[method](params, { serviceParameters: headers });
  },
  /** Begins a stream, with its first event. */
  async open({ stream, method, params, headers, ...place }) {
    const client = await connect(place);
    const events = client[method](params, { serviceParameters: headers });
    const { value, done } = await events.next();
    streams.set(stream, events);
    return done ? null : value;
  },
  /** The events that are left. */
  async rest({ stream }) {
    const found = [];
    for await (const event of streams.get(stream)) found.push(event);
    return found;
  },
  async leave({ stream }) {
    await streams.get(stream).return();
  },
};

function described(error) {
  const kind = ERRORS.find((name) => error instanceof sdk[name]) ?? error.constructor.name;
  return { kind, reason: null, message: error.message };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { does, ...given } = JSON.parse(line);
  const answer = await COMMANDS[does](given).then(
    (value) => ({ value: value ?? null }),
    (error) => ({ error: described(error) }),
  );
  console.log(JSON.stringify(answer));
}
