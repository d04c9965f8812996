// Completes tasks as the clients of others do: `node tasks_client.mjs URL`. Prints one JSON line.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema, ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { Client as Client2, StreamableHTTPClientTransport as HttpTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";

const said = {};
async function connected() {
  const client = new Client({ name: "ts", version: "1" }, { capabilities: { elicitation: {}, tasks: {} } });
  client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    const isForm = Object.keys(params.requestedSchema.properties).length > 0;
    return { action: "accept", content: isForm ? { confirm: true } : {} };
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
  return client;
}
const client = await connected();
await client.listTools();
for (const [name, args] of [["slow_compute", { seconds: 0 }], ["confirm_delete", { filename: "a" }]]) {
  const states = [];
  for await (const message of client.experimental.tasks.callToolStream({ name, arguments: args }, CallToolResultSchema, { task: {} })) {
    states.push(message.type);
    if (message.type === "result") said[name] = message.result.content[0].text;
    if (message.type === "error") said[name] = String(message.error);
  }
  said[`${name} ended`] = states.at(-1);
}
said.pay = (await client.callTool({ name: "pay", arguments: { to: "ts" } })).content[0].text;
await client.close();
const other = new Client2({ name: "ext", version: "1" }, { capabilities: { elicitation: {} } });
other.setRequestHandler("elicitation/create", async () => ({ action: "accept", content: {} }));
await other.connect(new HttpTransport(new URL(process.argv[2])));
try {
  const session = createTaskSessionFromClient(other, { endpointId: "pegboard" });
  const execution = await session.callTool("slow_compute", { seconds: 0, label: "ext" });
  const { outcome } = await execution.settle();
  said.ext = resultFromTaskOutcome(outcome).content[0].text;
  const paid = await session.callTool("pay", { to: "ext" });
  said["pay ext"] = resultFromTaskOutcome((await paid.settle()).outcome).content[0].text;
  await session.close();
} catch (error) { said.ext = String(error.stack ?? error).slice(0, 400); }
await other.close();
console.log(JSON.stringify(said));
process.exit(0);
