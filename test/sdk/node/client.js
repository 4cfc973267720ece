// Drives the Agones SDK's client for Node.js, unchanged, as the test says: each
// line of the input is a call, {"call": "alpha.playerConnect", "args": ["ann"]},
// and each line of the output is what came of it. "watch" starts a watch, whose
// game servers come as lines of their own.
"use strict";

const readline = require("readline");
const AgonesSDK = require("@google-cloud/agones-sdk");

const sdk = new AgonesSDK();
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

async function call(name, args) {
  if (name === "watch") {
    sdk.watchGameServer((server) => say({ watched: server }), () => {});
    return null;
  }
  const path = name.split(".");
  const method = path.pop();
  const target = path.reduce((object, part) => object[part], sdk);
  return target[method](...args);
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { call: name, args } = JSON.parse(line);
    try {
      say({ result: (await call(name, args || [])) ?? null });
    } catch (error) {
      say({ error: { code: error.code, details: error.details || String(error) } });
    }
  }
  sdk.close();
  // It leaves connections open that would keep the process.
  process.exit(0);
}

main();
