"use strict";

const { WorkloadModuleBase } = require("@hyperledger/caliper-core");
const { randomBytes } = require("crypto");

/** Registers a credential under a new id: nine random words. */
class Register extends WorkloadModuleBase {
  async submitTransaction() {
    const word = () => "0x" + randomBytes(32).toString("hex");
    await this.sutAdapter.sendRequests({
      contract: "registry",
      verb: "register",
      args: Array.from({ length: 9 }, word),
      readOnly: false,
    });
  }
}

module.exports.createWorkloadModule = () => new Register();
