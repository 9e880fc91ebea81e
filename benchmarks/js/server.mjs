// The agent of the benchmark on @a2a-js/sdk's server on Express: `node server.mjs [FILE]`, in memory or on SQLite.
import { execFileSync } from "node:child_process";
import { TaskState } from "@a2a-js/sdk";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import { DatabaseTaskStore } from "@a2a-js/sdk/server/database";
import { UserBuilder, agentCardHandler, restHandler } from "@a2a-js/sdk/server/express";
import Database from "better-sqlite3";
import express from "express";
import { Kysely, SqliteDialect } from "kysely";

const bench = {
  // The text is a number of pieces. A piece is the time at which it was emitted, in nanoseconds.
  async execute({ taskId, contextId, userMessage }, bus) {
    const status = (state) => ({ state, message: undefined, timestamp: new Date().toISOString() });
    const report = (state) => bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state) }));
    bus.publish(
      AgentEvent.task({
        id: taskId,
        contextId,
        status: status(TaskState.TASK_STATE_SUBMITTED),
        artifacts: [],
        history: [userMessage],
      }),
    );
    report(TaskState.TASK_STATE_WORKING);
    const count = Number(userMessage.parts[0].content.value);
    for (let number = 0; number < count; number++) {
      const content = { $case: "text", value: emittedAt() };
      const parts = [{ content, filename: "", mediaType: "" }];
      const artifact = { artifactId: "output", name: "", description: "", parts, extensions: [] };
      bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, artifact, append: number > 0, lastChunk: false }));
    }
    report(TaskState.TASK_STATE_COMPLETED);
  },
  async cancelTask() {
    throw new Error("the benchmark cancels nothing");
  },
};

function emittedAt() {
  return `${Math.round((performance.timeOrigin + performance.now()) * 1000)}000`;
}

// SQLite is in WAL mode and syncs every commit, as in Roost's own store. Its default journal is many times slower.
function taskStore(file) {
  if (!file) return new InMemoryTaskStore();
  execFileSync(process.execPath, ["node_modules/.bin/a2a-db", "upgrade", "--url", `sqlite:${file}`]);
  const database = new Database(file);
  database.pragma("journal_mode = WAL");
  database.pragma("synchronous = FULL");
  return new DatabaseTaskStore(new Kysely({ dialect: new SqliteDialect({ database }) }));
}

const card = {
  name: "bench",
  description: "Says as many pieces as it is told to.",
  version: "1.0.0",
  supportedInterfaces: [
    { url: "http://127.0.0.1/", protocolBinding: "HTTP+JSON", protocolVersion: "1.0", tenant: "" },
  ],
  capabilities: { streaming: true, pushNotifications: false, extensions: [] },
  defaultInputModes: ["text/plain"],
  defaultOutputModes: ["text/plain"],
  skills: [{ id: "bench", name: "bench", description: "Says pieces.", tags: ["bench"] }],
};

const handler = new DefaultRequestHandler(card, taskStore(process.argv[2]), bench);
const app = express();
app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: handler }));
app.use(restHandler({ requestHandler: handler, userBuilder: UserBuilder.noAuthentication }));
const server = app.listen(0, "127.0.0.1", () => {
  console.error(`Serves at http://127.0.0.1:${server.address().port}/`);
});
process.once("SIGTERM", () => process.exit(0));
