// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// Much storage: a long list that grows, is changed and is read at random places.
contract Ledger {
    event Sum(address indexed caller, uint256 sum);

    uint256 public count;
    mapping(uint256 => uint256) public entries;

    function append(uint256 seed, uint256 more) external {
        uint256 end = count;
        for (uint256 i = 0; i < more; i++) entries[end + i] = uint256(keccak256(abi.encode(seed, i)));
        count = end + more;
    }

    function update(uint256 seed, uint256 times) external {
        uint256 end = count;
        for (uint256 i = 0; i < times; i++) {
            uint256 word = uint256(keccak256(abi.encode(seed, i)));
            unchecked {
                entries[word % end] += word >> 128;
            }
        }
    }

    function sum(uint256 seed, uint256 times) external {
        uint256 end = count;
        uint256 total;
        for (uint256 i = 0; i < times; i++) {
            unchecked {
                total += entries[uint256(keccak256(abi.encode(seed, i))) % end];
            }
        }
        emit Sum(msg.sender, total);
    }
}
