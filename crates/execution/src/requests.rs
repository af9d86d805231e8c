//! EIP-7685: what a block asks of the consensus layer.

use crate::executor::{ExecuteError, Executor};
use niwaki_primitives::{
    Address, B256, BUILDER_DEPOSIT_CONTRACT_ADDRESS, BUILDER_DEPOSIT_REQUEST_TYPE,
    BUILDER_EXIT_CONTRACT_ADDRESS, BUILDER_EXIT_REQUEST_TYPE, Bytes, Fork, Receipt, U256, b256,
};
use niwaki_rules::{ChainSpec, InvalidBlock};

/// `DepositEvent(bytes,bytes,bytes,bytes,bytes)`.
const DEPOSIT_EVENT: B256 =
    b256!("649bbc62d0e31342afea4e5cd82d4049e7e1ee912fc0889aa790803be39038c5");

/// Deposits to builders and their exits, by type (EIP-8282).
const BUILDER_CONTRACTS: [(u8, Address); 2] = [
    (
        BUILDER_DEPOSIT_REQUEST_TYPE,
        BUILDER_DEPOSIT_CONTRACT_ADDRESS,
    ),
    (BUILDER_EXIT_REQUEST_TYPE, BUILDER_EXIT_CONTRACT_ADDRESS),
];

/// Bytes of a deposit event's data.
const DEPOSIT_BYTES: usize = 576;

/// Where each field's length word stands in the event's data, and what it must say: public key,
/// withdrawal credentials, amount, signature, index.
const DEPOSIT_FIELDS: [(usize, usize); 5] = [(160, 48), (256, 32), (320, 8), (384, 96), (512, 8)];

impl Executor<'_> {
    /// The block's requests, each a type byte and its data, without empty ones.
    ///
    /// Spec: EIP-6110, EIP-7002, EIP-7251, EIP-8282; execution-specs `amsterdam/fork.py`,
    /// `process_general_purpose_requests`.
    pub(crate) fn collect_requests(
        &mut self,
        spec: &ChainSpec,
        receipts: &[Receipt],
    ) -> Result<Vec<Bytes>, ExecuteError> {
        let deposits = deposits(spec, receipts)?;
        let withdrawals = self.take_requests(spec.withdrawal_request_contract)?;
        let consolidations = self.take_requests(spec.consolidation_request_contract)?;
        let mut typed = vec![
            (0u8, deposits),
            (1, withdrawals.into()),
            (2, consolidations.into()),
        ];
        if self.rules.fork >= Fork::Amsterdam {
            for (kind, contract) in BUILDER_CONTRACTS {
                typed.push((kind, self.take_requests(contract)?.into()));
            }
        }
        Ok(typed
            .into_iter()
            .filter(|(_, data)| !data.is_empty())
            .map(|(kind, data)| [&[kind], data.as_slice()].concat().into())
            .collect())
    }
}

fn deposits(spec: &ChainSpec, receipts: &[Receipt]) -> Result<Vec<u8>, InvalidBlock> {
    let mut data = Vec::new();
    for log in receipts.iter().flat_map(|receipt| &receipt.logs) {
        let is_deposit = log.address == spec.deposit_contract
            && log.data.topics().first() == Some(&DEPOSIT_EVENT);
        if is_deposit {
            append_deposit(&mut data, &log.data.data)?;
        }
    }
    Ok(data)
}

/// Appends the five fields of one event, having checked the layout that the contract gives it.
///
/// Spec: EIP-6110, `is_valid_deposit_event_data`.
fn append_deposit(to: &mut Vec<u8>, event: &[u8]) -> Result<(), InvalidBlock> {
    let invalid = |reason| Err(InvalidBlock::DepositLayout { reason });
    if event.len() != DEPOSIT_BYTES {
        return invalid("the data is not 576 bytes long");
    }
    let (words, _) = event.as_chunks::<32>();
    let word_is = |at: usize, value: usize| {
        words
            .get(at / 32)
            .is_some_and(|word| U256::from_be_bytes(*word) == U256::from(value))
    };
    for (index, (start, length)) in DEPOSIT_FIELDS.into_iter().enumerate() {
        if !word_is(index.saturating_mul(32), start) {
            return invalid("a field does not begin where it must");
        }
        if !word_is(start, length) {
            return invalid("a field does not have the length that it must");
        }
    }
    for (start, length) in DEPOSIT_FIELDS {
        let from = start.saturating_add(32);
        to.extend_from_slice(&event[from..from.saturating_add(length)]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Vec<u8> {
        let mut event = vec![0; DEPOSIT_BYTES];
        for (index, (start, length)) in DEPOSIT_FIELDS.into_iter().enumerate() {
            let mut put = |at: usize, value: usize| {
                event[at..at + 32].copy_from_slice(&U256::from(value).to_be_bytes::<32>());
            };
            put(index * 32, start);
            put(start, length);
            event[start + 32] = u8::try_from(index).unwrap() + 1;
        }
        event
    }

    #[test]
    fn the_fields_of_a_deposit_are_taken_in_order() {
        let mut data = Vec::new();
        append_deposit(&mut data, &event()).unwrap();
        assert_eq!(data.len(), 48 + 32 + 8 + 96 + 8);
        assert_eq!(
            [data[0], data[48], data[80], data[88], data[184]],
            [1, 2, 3, 4, 5]
        );
    }

    #[test]
    fn a_deposit_of_another_layout_is_invalid() {
        let layout = |event: &[u8]| append_deposit(&mut Vec::new(), event).unwrap_err();
        assert!(matches!(
            layout(&event()[1..]),
            InvalidBlock::DepositLayout { .. }
        ));
        for at in [31, 160 + 31, 512 + 31] {
            let mut bad = event();
            bad[at] ^= 1;
            assert!(matches!(layout(&bad), InvalidBlock::DepositLayout { .. }));
        }
    }
}
