// What viem does: fees, deployment, simulation, writes, events, a multicall-like batch, proofs.
import assert from "node:assert/strict";
import { createPublicClient, createWalletClient, defineChain, http } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { KEY, SECOND, compile } from "./compile.mjs";

const [url] = process.argv.slice(2);
const chain = defineChain({
  id: 1337,
  name: "dev",
  nativeCurrency: { name: "Ether", symbol: "ETH", decimals: 18 },
  rpcUrls: { default: { http: [url] } },
});
const transport = http(url, { batch: true });
const account = privateKeyToAccount(KEY);
const reader = createPublicClient({ chain, transport, pollingInterval: 100, cacheTime: 0 });
const writer = createWalletClient({ account, chain, transport });

assert.equal(await reader.getChainId(), 1337);
const { abi, bytecode } = compile();
const deployed = await reader.waitForTransactionReceipt({
  hash: await writer.deployContract({ abi, bytecode, args: [5n] }),
});
const address = deployed.contractAddress;
assert.equal(await reader.readContract({ address, abi, functionName: "value" }), 5n);
const { request } = await reader.simulateContract({ account, address, abi, functionName: "store", args: [9n] });
const receipt = await reader.waitForTransactionReceipt({ hash: await writer.writeContract(request) });
assert.equal(receipt.status, "success");
const events = await reader.getContractEvents({ address, abi, eventName: "Stored", fromBlock: 0n });
assert.equal(events.at(-1).args.value, 9n);
await assert.rejects(
  reader.simulateContract({ account, address, abi, functionName: "store", args: [5000n] }),
  (error) => /TooLarge/.test(error.message),
);
const [block, fees, history, proof, nonce] = await Promise.all([
  reader.getBlock({ includeTransactions: true }),
  reader.estimateFeesPerGas(),
  reader.getFeeHistory({ blockCount: 4, rewardPercentiles: [25, 75] }),
  reader.getProof({ address, storageKeys: ["0x" + "0".repeat(64)] }),
  reader.getTransactionCount({ address: account.address, blockTag: "pending" }),
]);
assert.ok(block.transactions.length > 0 && fees.maxFeePerGas > 0n && history.reward.length > 0);
assert.equal(proof.storageProof[0].value, 9n);
assert.ok(nonce > 0);
const overridden = await reader.readContract({
  address, abi, functionName: "value",
  stateOverride: [{ address, stateDiff: [{ slot: "0x" + "0".repeat(64), value: "0x" + "0".repeat(62) + "2a" }] }],
});
assert.equal(overridden, 42n);
const sent = await writer.sendTransaction({ to: SECOND, value: 3n });
assert.equal((await reader.waitForTransactionReceipt({ hash: sent })).status, "success");
console.log("viem: all right");
