// What ethers does: fees, nonces, deployment, calls, events, errors, typed transactions, a socket.
import assert from "node:assert/strict";
import { ethers } from "ethers";
import { KEY, SECOND, compile } from "./compile.mjs";

const [http, ws] = process.argv.slice(2);
const provider = new ethers.JsonRpcProvider(http, undefined, { cacheTimeout: -1 });
provider.pollingInterval = 100;
const wallet = new ethers.Wallet(KEY, provider);
assert.equal((await provider.getNetwork()).chainId, 1337n);
assert.ok((await provider.getFeeData()).maxFeePerGas > 0n);

const before = await provider.getBalance(SECOND);
const sent = await (await wallet.sendTransaction({ to: SECOND, value: 12345n })).wait();
assert.equal(sent.status, 1);
assert.equal((await provider.getBalance(SECOND)) - before, 12345n);
assert.equal((await provider.getTransaction(sent.hash)).blockNumber, sent.blockNumber);
assert.equal((await provider.getBlock(sent.blockNumber, true)).prefetchedTransactions[0].hash, sent.hash);

const { abi, bytecode } = compile();
const box = await (await new ethers.ContractFactory(abi, bytecode, wallet).deploy(7)).waitForDeployment();
assert.equal(await box.value(), 7n);
assert.notEqual(await provider.getCode(await box.getAddress()), "0x");
const stored = await (await box.store(42)).wait();
assert.equal(stored.logs.length, 1);
assert.equal(await box.value(), 42n);
const events = await box.queryFilter(box.filters.Stored(wallet.address), 0, "latest");
assert.deepEqual(events.map((event) => event.args.value), [42n]);
await assert.rejects(box.store(13), (error) => error.code === "CALL_EXCEPTION" && error.reason === "unlucky");
await assert.rejects(
  box.store.staticCall(2000),
  (error) => error.revert?.name === "TooLarge" && error.revert.args[0] === 2000n,
);
await assert.rejects(
  wallet.sendTransaction({ to: SECOND, value: ethers.parseEther("1000000000") }),
  (error) => error.code === "INSUFFICIENT_FUNDS",
);

for (const type of [0, 1, 2]) {
  const receipt = await (await wallet.sendTransaction({ to: SECOND, value: 1n, type })).wait();
  assert.equal(receipt.type, type);
}
await assert.rejects(wallet.sendTransaction({ to: SECOND, nonce: 0 }), (error) => error.code === "NONCE_EXPIRED");

const socket = new ethers.WebSocketProvider(ws);
const heard = new Promise((resolve) => socket.once("block", resolve));
await new Promise((resolve) => setTimeout(resolve, 300));
const next = await (await wallet.sendTransaction({ to: SECOND, value: 1n })).wait();
assert.equal(await heard, next.blockNumber);
await socket.destroy();
provider.destroy();
console.log("ethers: all right");
