// Compiles Box.sol with solc, as a project would.
import { readFileSync } from "node:fs";
import solc from "solc";

export function compile() {
  const input = {
    language: "Solidity",
    sources: { "Box.sol": { content: readFileSync(new URL("Box.sol", import.meta.url), "utf8") } },
    settings: { outputSelection: { "*": { "*": ["abi", "evm.bytecode.object"] } } },
  };
  const output = JSON.parse(solc.compile(JSON.stringify(input)));
  const errors = (output.errors ?? []).filter((error) => error.severity === "error");
  if (errors.length) throw new Error(errors.map((error) => error.formattedMessage).join("\n"));
  const { abi, evm } = output.contracts["Box.sol"].Box;
  return { abi, bytecode: "0x" + evm.bytecode.object };
}

// The first account of --network dev; everybody knows its key.
export const KEY = "0x8f2a55949038a9610f50fb23b5883af3b4ecb3c3bb792cbcefbd1542c692be63";
export const SECOND = "0x627306090abaB3A6e1400e9345bC60c78a8BEf57";
