// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// Things with numbers, each with an owner, and for each owner a list of theirs.
contract Nft {
    event Transfer(address indexed from, address indexed to, uint256 indexed id);

    error NotYours(uint256 id);

    uint256 public totalSupply;
    mapping(uint256 => address) public ownerOf;
    mapping(address => uint256) public balanceOf;
    mapping(address => mapping(uint256 => uint256)) public tokenOfOwnerByIndex;
    mapping(uint256 => uint256) private place;

    function mint(address to, uint256 count) external {
        uint256 id = totalSupply;
        for (uint256 i = 0; i < count; i++) {
            add(to, id + i);
            emit Transfer(address(0), to, id + i);
        }
        totalSupply = id + count;
    }

    function transferFrom(address from, address to, uint256 id) external {
        if (ownerOf[id] != from || from != msg.sender) revert NotYours(id);
        uint256 last = balanceOf[from] - 1;
        uint256 at = place[id];
        if (at != last) {
            uint256 moved = tokenOfOwnerByIndex[from][last];
            tokenOfOwnerByIndex[from][at] = moved;
            place[moved] = at;
        }
        delete tokenOfOwnerByIndex[from][last];
        balanceOf[from] = last;
        add(to, id);
        emit Transfer(from, to, id);
    }

    function add(address to, uint256 id) private {
        uint256 at = balanceOf[to];
        ownerOf[id] = to;
        tokenOfOwnerByIndex[to][at] = id;
        place[id] = at;
        balanceOf[to] = at + 1;
    }
}
