// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// Much work, little storage: each call leaves one word.
contract Compute {
    uint256 constant MODULUS = 2 ** 255 - 19;

    mapping(address => uint256) public results;

    function hash(uint256 seed, uint256 times) external {
        bytes32 word = bytes32(seed);
        for (uint256 i = 0; i < times; i++) word = keccak256(abi.encode(word, i));
        results[msg.sender] = uint256(word);
    }

    /// Sorts by a heap.
    function sort(uint256 seed, uint256 length) external {
        uint256[] memory list = new uint256[](length);
        for (uint256 i = 0; i < length; i++) list[i] = uint256(keccak256(abi.encode(seed, i))) >> 192;
        for (uint256 i = length / 2; i > 0; i--) sink(list, i - 1, length);
        for (uint256 end = length - 1; end > 0; end--) {
            (list[0], list[end]) = (list[end], list[0]);
            sink(list, 0, end);
        }
        for (uint256 i = 1; i < length; i++) assert(list[i - 1] <= list[i]);
        results[msg.sender] = list[length / 2];
    }

    function sink(uint256[] memory list, uint256 at, uint256 end) private pure {
        while (true) {
            uint256 child = 2 * at + 1;
            if (child >= end) return;
            if (child + 1 < end && list[child + 1] > list[child]) child++;
            if (list[at] >= list[child]) return;
            (list[at], list[child]) = (list[child], list[at]);
            at = child;
        }
    }

    /// Powers modulo a prime.
    function power(uint256 seed, uint256 times) external {
        uint256 value = seed % MODULUS;
        uint256 sum;
        for (uint256 i = 0; i < times; i++) {
            value = mulmod(value, value + 1, MODULUS);
            sum = addmod(sum, value, MODULUS);
        }
        results[msg.sender] = sum;
    }

    /// Signatures of no particular key, and digests.
    function recover(uint256 seed, uint256 times) external {
        bytes32 word = bytes32(seed);
        for (uint256 i = 0; i < times; i++) {
            address signer = ecrecover(word, uint8(27 + (i & 1)), word >> 8, word >> 9);
            word = sha256(abi.encode(word, signer));
        }
        results[msg.sender] = uint256(word);
    }
}
