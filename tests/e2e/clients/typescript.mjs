// The TypeScript SDK: `typescript.mjs URL` prints what it saw.
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const client = new Client({ name: "e2e", version: "1" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, async () => ({ action: "accept", content: { answer: "Ann" } }));
const changed = new Promise((done) => client.setNotificationHandler(ToolListChangedNotificationSchema, () => done()));
await client.connect(new StreamableHTTPClientTransport(new URL(`${process.argv[2]}/mcp`)));

const call = (name, args = {}, options = {}) => client.callTool({ name, arguments: args }, undefined, options);
const names = (await client.listTools()).tools.map((tool) => tool.name);
const pids = new Set();
for (let i = 0; i < 8; i++) pids.add((await call("who")).content[0].text);
const asked = [];
for (let i = 0; i < 4; i++) asked.push(JSON.parse((await call("ask")).content[0].text).said);
const wrong = [];
for (const [name, args] of [["who", { x: 1 }], ["up__add", { a: "x", b: 1 }], ["up__fail", {}]])
  wrong.push((await call(name, args)).content[0].text);
const decided = [];
for (let i = 0; i < 6; i++) {
  const messages = client.experimental.tasks.callToolStream({ name: "decide", arguments: {} }, undefined, { task: {} });
  for await (const message of messages) {
    if (message.type === "result") decided.push(JSON.parse(message.result.content[0].text));
    if (message.type === "error") decided.push(String(message.error));
  }
}
const told = [];
await call("steps", {}, { onprogress: ({ progress }) => told.push(Math.round(progress * 100) / 100) });
const ending = new AbortController();
const held = call("hold", { name: "typescript" }, { signal: ending.signal }).then(() => "ended", (error) => error.name);
console.log("holding");
await new Promise((done) => createInterface({ input: process.stdin }).once("line", done));
ending.abort("enough");
const outcome = await held;
console.log("changing");
await changed;
console.log(JSON.stringify({ names, pids: pids.size, asked, told, held: outcome, wrong, decided }));
process.exit(0);
