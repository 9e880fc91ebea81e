// The JavaScript SDK's opinion of cards: a question on each line of stdin, an answer on each line of stdout.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

// The package is installed in the current directory, which is not where this file is.
const { AgentCard, canonicalizeAgentCard, verifyAgentCardSignature } = await import(
  pathToFileURL(`${process.cwd()}/node_modules/@a2a-js/sdk/dist/index.js`).href
);
console.debug = () => {}; // where the SDK says why a signature does not fit

async function answer({ card, keys, parsed }) {
  const verify = verifyAgentCardSignature(async (kid) => {
    const key = keys.find((candidate) => candidate.kid === kid);
    if (!key) throw new Error("unknown key");
    return key;
  });
  // Its client hands on what it has parsed, where the card has security schemes; others hand on the JSON as it came.
  const value = parsed ? AgentCard.fromJSON(JSON.parse(card)) : JSON.parse(card);
  const form = canonicalizeAgentCard(value);
  return verify(value).then(
    () => ({ valid: true, form }),
    () => ({ valid: false, form }),
  );
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(JSON.parse(line))));
}
