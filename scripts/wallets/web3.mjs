// What web3.js does: balances, a signed transfer, a contract.
import assert from "node:assert/strict";
import { Web3 } from "web3";
import { KEY, SECOND, compile } from "./compile.mjs";

const [url] = process.argv.slice(2);
const web3 = new Web3(url);
const account = web3.eth.accounts.privateKeyToAccount(KEY);
web3.eth.accounts.wallet.add(account);
assert.equal(await web3.eth.getChainId(), 1337n);
const receipt = await web3.eth.sendTransaction({ from: account.address, to: SECOND, value: 77, gas: 21000 });
assert.equal(receipt.status, 1n);
const { abi, bytecode } = compile();
const box = await new web3.eth.Contract(abi)
  .deploy({ data: bytecode, arguments: [3] })
  .send({ from: account.address, gas: "1000000" });
assert.equal(await box.methods.value().call(), 3n);
await box.methods.store(11).send({ from: account.address, gas: "200000" });
assert.equal(await box.methods.last(account.address).call(), 11n);
const events = await box.getPastEvents("Stored", { fromBlock: 0 });
assert.equal(events.length, 1);
console.log("web3.js: all right");
process.exit(0);
