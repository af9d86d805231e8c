//! ABI encoding of calls.

use niwaki_crypto::keccak256;
use niwaki_primitives::{Address, Bytes, U256};

/// An address as a word.
pub(super) fn word(address: Address) -> U256 {
    U256::from_be_bytes(address.into_word().0)
}

/// A call of `signature` with arguments of one word each.
pub(super) fn call(signature: &str, words: &[U256]) -> Bytes {
    let mut input = keccak256(signature)[..4].to_vec();
    for word in words {
        input.extend_from_slice(&word.to_be_bytes::<32>());
    }
    input.into()
}

/// A call of `swap(address[],address[],uint256,uint256)`.
pub(super) fn call_swap(tokens: &[Address], pairs: &[Address], amount: U256, least: U256) -> Bytes {
    const HEAD_BYTES: usize = 4 * 32;
    let mut words = vec![
        U256::from(HEAD_BYTES),
        U256::from(HEAD_BYTES + 32 * (1 + tokens.len())),
        amount,
        least,
    ];
    for list in [tokens, pairs] {
        words.push(U256::from(list.len()));
        words.extend(list.iter().map(|address| word(*address)));
    }
    call("swap(address[],address[],uint256,uint256)", &words)
}

/// A call of `execute((address,uint256,bytes)[])` that forwards no value.
pub(super) fn call_execute(calls: &[(Address, Bytes)]) -> Bytes {
    let mut offsets = Vec::new();
    let mut tail: Vec<u8> = Vec::new();
    for (to, data) in calls {
        offsets.push(U256::from(32 * calls.len() + tail.len()));
        let head = [
            word(*to),
            U256::ZERO,
            U256::from(3 * 32),
            U256::from(data.len()),
        ];
        for word in head {
            tail.extend_from_slice(&word.to_be_bytes::<32>());
        }
        tail.extend_from_slice(data);
        tail.resize(tail.len().next_multiple_of(32), 0);
    }
    let mut words = vec![U256::from(32), U256::from(calls.len())];
    words.extend(offsets);
    let mut input = call("execute((address,uint256,bytes)[])", &words).to_vec();
    input.extend_from_slice(&tail);
    input.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::hex;

    #[test]
    fn a_call_begins_with_its_selector() {
        let input = call("transfer(address,uint256)", &[U256::from(1), U256::from(2)]);
        assert_eq!(hex::encode(&input[..4]), "a9059cbb");
        assert_eq!(input.len(), 4 + 64);
        assert_eq!(input[67], 2);
    }

    #[test]
    fn lists_are_at_their_offsets() {
        let tokens = [Address::repeat_byte(1), Address::repeat_byte(2)];
        let input = call_swap(&tokens, &tokens[..1], U256::from(5), U256::ZERO);
        let at = |word: usize| U256::from_be_slice(&input[4 + 32 * word..][..32]);
        assert_eq!(at(at(0).to::<usize>() / 32), U256::from(2));
        assert_eq!(at(at(1).to::<usize>() / 32), U256::from(1));
        assert_eq!(at(2), U256::from(5));

        let data = Bytes::from_static(&[7; 5]);
        let input = call_execute(&[(tokens[0], data.clone()), (tokens[1], data)]);
        let at = |word: usize| U256::from_be_slice(&input[4 + 32 * word..][..32]);
        assert_eq!(at(1), U256::from(2));
        let second = 2 + at(3).to::<usize>() / 32;
        assert_eq!(at(second), word(tokens[1]));
        assert_eq!(at(second + 3), U256::from(5));
        assert_eq!(input.len(), 4 + 32 * (second + 5));
    }
}
