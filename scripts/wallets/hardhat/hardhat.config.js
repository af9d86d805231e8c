import hardhatEthers from "@nomicfoundation/hardhat-ethers";

export default {
  plugins: [hardhatEthers],
  networks: {
    dev: {
      type: "http",
      chainType: "l1",
      url: process.env.NIWAKI_URL,
      accounts: ["0x8f2a55949038a9610f50fb23b5883af3b4ecb3c3bb792cbcefbd1542c692be63"],
    },
  },
};
