// Compiles the contracts of this folder with solc 0.8.37, which `npm install` in scripts/wallets brings:
//
//   node tools/bench/contracts/compile.mjs FOLDER    (with node_modules in it)
//
// NAME.hex is code as it lies at an address; Token.init.hex what a transaction deploys a token with.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const solc = createRequire(resolve(process.argv[2] ?? ".") + "/")("solc");
const here = new URL("./", import.meta.url);
const names = readdirSync(here).filter((name) => name.endsWith(".sol"));
const output = JSON.parse(
  solc.compile(
    JSON.stringify({
      language: "Solidity",
      sources: Object.fromEntries(names.map((name) => [name, { content: readFileSync(new URL(name, here), "utf8") }])),
      settings: {
        evmVersion: "cancun",
        optimizer: { enabled: true, runs: 1000 },
        metadata: { appendCBOR: false },
        outputSelection: { "*": { "*": ["evm.bytecode.object", "evm.deployedBytecode.object", "storageLayout"] } },
      },
    }),
  ),
);
const errors = (output.errors ?? []).filter((error) => error.severity === "error");
if (errors.length) throw new Error(errors.map((error) => error.formattedMessage).join("\n"));
for (const file of names) {
  const name = file.slice(0, -4);
  const { evm, storageLayout } = output.contracts[file][name];
  if (storageLayout.storage.length === 0 && name === "Prices") continue;
  writeFileSync(new URL(`${name}.hex`, here), evm.deployedBytecode.object + "\n");
  if (name === "Token") writeFileSync(new URL("Token.init.hex", here), evm.bytecode.object + "\n");
  if (process.argv[3] === "--layout") {
    for (const { label, slot, offset } of storageLayout.storage) console.log(name, label, slot, offset);
  }
}
