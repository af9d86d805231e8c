// A contract deployed, called and refused through hardhat 3; solc compiles it, since hardhat would download a compiler.
import assert from "node:assert/strict";
import { network } from "hardhat";
import { compile } from "./compile.mjs";

const { ethers } = await network.create({ network: "dev" });
const [signer] = await ethers.getSigners();
const { abi, bytecode } = compile();
const factory = new ethers.ContractFactory(abi, bytecode, signer);
const box = await factory.deploy(1);
await box.waitForDeployment();
assert.equal(await box.value(), 1n);
await (await box.store(6)).wait();
assert.equal(await box.value(), 6n);
await assert.rejects(box.store.staticCall(13), /unlucky/);
console.log("hardhat: all right");
