// The JavaScript SDK as a client: a command on each line of stdin, what came of it on each line of stdout.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// The packages are installed in the current directory, which is not where this file is.
const require = createRequire(`${process.cwd()}/`);
const types = require("@a2a-js/sdk");
const errors = require("@a2a-js/sdk/errors");
const { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } = require("@a2a-js/sdk/client");
const { GrpcTransportFactory } = require("@a2a-js/sdk/client/grpc");

const TRANSPORTS = { JSONRPC: JsonRpcTransportFactory, "HTTP+JSON": RestTransportFactory, GRPC: GrpcTransportFactory };
const REQUESTS = {
  sendMessage: types.SendMessageRequest,
  sendMessageStream: types.SendMessageRequest,
  getTask: types.GetTaskRequest,
  listTasks: types.ListTasksRequest,
  cancelTask: types.CancelTaskRequest,
  resubscribeTask: types.SubscribeToTaskRequest,
  createTaskPushNotificationConfig: types.TaskPushNotificationConfig,
  getTaskPushNotificationConfig: types.GetTaskPushNotificationConfigRequest,
  listTaskPushNotificationConfig: types.ListTaskPushNotificationConfigsRequest,
  deleteTaskPushNotificationConfig: types.DeleteTaskPushNotificationConfigRequest,
};
const ANSWERS = {
  sendMessage: (sent) => ("messageId" in sent ? { message: types.Message.toJSON(sent) } : { task: types.Task.toJSON(sent) }),
  getTask: types.Task.toJSON,
  listTasks: types.ListTasksResponse.toJSON,
  cancelTask: types.Task.toJSON,
  createTaskPushNotificationConfig: types.TaskPushNotificationConfig.toJSON,
  getTaskPushNotificationConfig: types.TaskPushNotificationConfig.toJSON,
  listTaskPushNotificationConfig: types.ListTaskPushNotificationConfigsResponse.toJSON,
  deleteTaskPushNotificationConfig: () => ({}),
};
const SEMANTIC = Object.keys(errors).filter((name) => /^(?!A2A|Rest|JsonRpc)\w+Error$/.test(name));

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
    return ANSWERS[method](await client[method](REQUESTS[method].fromJSON(params), { serviceParameters: headers }));
  },
  /** Begins a stream, with its first event. */
  async open({ stream, method, params, headers, ...place }) {
    const client = await connect(place);
    const events = client[method](REQUESTS[method].fromJSON(params), { serviceParameters: headers });
    const { value, done } = await events.next();
    streams.set(stream, events);
    return done ? null : types.StreamResponse.toJSON(value);
  },
  /** The events that are left. */
  async rest({ stream }) {
    const found = [];
    for await (const event of streams.get(stream)) found.push(types.StreamResponse.toJSON(event));
    return found;
  },
  async leave({ stream }) {
    await streams.get(stream).return();
  },
  async protocol(place) {
    const client = await connect(place);
    return [client.transport.protocolName, client.protocolVersion];
  },
};

function described(error) {
  const kind = SEMANTIC.find((name) => error instanceof errors[name]) ?? error.constructor.name;
  return { kind, reason: error.reason ?? null, message: error.message };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { does, ...given } = JSON.parse(line);
  const answer = await COMMANDS[does](given).then(
    (value) => ({ value: value ?? null }),
    (error) => ({ error: described(error) }),
  );
  console.log(JSON.stringify(answer));
}
