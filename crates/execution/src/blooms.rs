//! Blooms of a block's receipts.

use niwaki_crypto::keccak256_batch;
use niwaki_primitives::{Bloom, Receipt, map::HashMap};

/// The bloom of each receipt's logs. What many logs have in common, contracts and events most of all, is hashed once.
pub fn receipt_blooms(receipts: &[Receipt]) -> Vec<Bloom> {
    let mut places: HashMap<&[u8], usize> = HashMap::default();
    let mut inputs: Vec<&[u8]> = Vec::new();
    let mut inputs_of = Vec::new();
    for log in receipts.iter().flat_map(|receipt| &receipt.logs) {
        let topics = log.topics().iter().map(|topic| topic.as_slice());
        for input in std::iter::once(log.address.as_slice()).chain(topics) {
            let place = places.entry(input).or_insert_with(|| {
                inputs.push(input);
                inputs.len().saturating_sub(1)
            });
            inputs_of.push(*place);
        }
    }
    let hashes = keccak256_batch(&inputs);
    let mut inputs_of = inputs_of.into_iter();
    let bloom = |receipt: &Receipt| {
        let inputs = receipt
            .logs
            .iter()
            .map(|log| log.topics().len().saturating_add(1))
            .sum();
        let mut bloom = Bloom::ZERO;
        for place in inputs_of.by_ref().take(inputs) {
            bloom.m3_2048_hashed(&hashes[place]);
        }
        bloom
    };
    receipts.iter().map(bloom).collect()
}

/// The bloom of the logs of all receipts.
pub fn logs_bloom(receipts: &[Receipt]) -> Bloom {
    let blooms = receipt_blooms(receipts).into_iter();
    blooms.fold(Bloom::ZERO, |all, bloom| all | bloom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::{Address, B256, Log, LogData};
    use proptest::prelude::*;

    fn log(address: u8, topics: Vec<u8>) -> Log {
        let topics = topics.into_iter().map(B256::repeat_byte).collect();
        Log {
            address: Address::repeat_byte(address),
            data: LogData::new_unchecked(topics, [1].into()),
        }
    }

    fn receipt(logs: Vec<(u8, Vec<u8>)>) -> Receipt {
        Receipt {
            tx_type: 0,
            status: Some(true),
            post_state: None,
            cumulative_gas_used: 0,
            logs: logs
                .into_iter()
                .map(|(address, topics)| log(address, topics))
                .collect(),
        }
    }

    proptest! {
        #[test]
        fn each_bloom_is_that_of_its_receipt_alone(
            logs in prop::collection::vec(
                prop::collection::vec((0_u8..6, prop::collection::vec(0_u8..6, 0..=4)), 0..4),
                0..12,
            )
        ) {
            let receipts: Vec<Receipt> = logs.into_iter().map(receipt).collect();
            let alone: Vec<Bloom> = receipts.iter().map(Receipt::bloom).collect();
            let all = alone.iter().fold(Bloom::ZERO, |all, bloom| all | *bloom);
            prop_assert_eq!(logs_bloom(&receipts), all);
            prop_assert_eq!(receipt_blooms(&receipts), alone);
        }
    }
}
