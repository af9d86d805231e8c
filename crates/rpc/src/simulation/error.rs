//! geth's error messages and codes for simulated transactions that are invalid or fail.

use super::block::SimulationResult;
use crate::RpcError;
use niwaki_evm::Failure;
use niwaki_primitives::{Address, U256};
use niwaki_rules::InvalidTransaction;

/// `Error(string)` and `Panic(uint256)`.
const ERROR: [u8; 4] = [0x08, 0xc3, 0x79, 0xa0];
const PANIC: [u8; 4] = [0x4e, 0x48, 0x7b, 0x71];

/// The message for `reason`.
pub(crate) fn error_message(reason: &InvalidTransaction, sender: Address) -> String {
    use InvalidTransaction as I;
    match reason {
        I::NonceTooLow { got, expected } => {
            format!("nonce too low: address {sender}, tx: {got} state: {expected}")
        }
        I::NonceTooHigh { got, expected } => {
            format!("nonce too high: address {sender}, tx: {got} state: {expected}")
        }
        I::NonceIsMax => {
            format!("nonce has max value: address {sender}, nonce: {}", u64::MAX)
        }
        I::InsufficientFunds { balance, cost } => {
            let cost = cost.map_or_else(|| "over 2^256".to_owned(), |cost| cost.to_string());
            format!(
                "insufficient funds for gas * price + value: address {sender} have {balance} want \
                 {cost}"
            )
        }
        I::IntrinsicGasTooLow { got, needed } => {
            format!("intrinsic gas too low: have {got}, want {needed}")
        }
        I::GasBelowFloor { got, floor } => {
            format!("insufficient gas for floor data gas cost: have {got}, want {floor}")
        }
        I::InitCodeTooLarge { got, max } => {
            format!("max initcode size exceeded: code size {got} limit {max}")
        }
        I::MaxFeeBelowBaseFee { got, base_fee } => format!(
            "max fee per gas less than block base fee: address {sender}, maxFeePerGas: {got}, \
             baseFee: {base_fee}"
        ),
        I::PriorityAboveMaxFee { priority, max_fee } => format!(
            "max priority fee per gas higher than max fee per gas: address {sender}, \
             maxPriorityFeePerGas: {priority}, maxFeePerGas: {max_fee}"
        ),
        I::MaxFeeBelowBlobBaseFee { got, blob_base_fee } => format!(
            "max fee per blob gas less than block blob gas fee: address {sender} blobGasFeeCap: \
             {got}, blobBaseFee: {blob_base_fee}"
        ),
        I::ZeroBlobs => "blob transaction missing blob hashes".to_owned(),
        I::BlobCreate => "blob transaction of type create".to_owned(),
        I::SetCodeCreate => "EIP-7702 transaction cannot be used to create contract".to_owned(),
        I::EmptyAuthorizationList => "EIP-7702 transaction with empty auth list".to_owned(),
        other => other.to_string(),
    }
}

/// The error code of `eth_simulateV1` for `reason`.
pub(crate) fn simulation_code(reason: &InvalidTransaction) -> i64 {
    use InvalidTransaction as I;
    match reason {
        I::NonceTooLow { .. } => -38010,
        I::NonceTooHigh { .. } => -38011,
        I::MaxFeeBelowBaseFee { .. } => -38012,
        I::IntrinsicGasTooLow { .. } | I::GasBelowFloor { .. } => -38013,
        I::InsufficientFunds { .. } => -38014,
        I::GasAllowanceExceeded { .. } => -38015,
        I::SenderNotEoa { .. } => -38024,
        I::InitCodeTooLarge { .. } => -38025,
        _ => -32603,
    }
}

/// The error of a call with this gas.
pub(crate) fn invalid(reason: &InvalidTransaction, sender: Address, gas: u64) -> RpcError {
    let words = error_message(reason, sender);
    RpcError::server(format!("err: {words} (supplied gas {gas})"))
}

/// The error of a transaction that failed; `None` for one that succeeded.
pub(crate) fn reverted(run: &SimulationResult) -> Option<RpcError> {
    Some(match run.failure? {
        Failure::Revert => {
            let output = &run.result.output;
            RpcError::reverted(revert_reason(output).as_deref(), output)
        }
        failure => RpcError::server(failure.to_string()),
    })
}

/// The reason of a revert, if it is encoded as Solidity does.
pub(crate) fn revert_reason(output: &[u8]) -> Option<String> {
    let (selector, rest) = output.split_first_chunk::<4>()?;
    match *selector {
        PANIC => {
            let code = U256::from_be_slice(rest.get(..32)?);
            Some(panic_reason(code))
        }
        ERROR => {
            let text = abi_string(rest)?;
            Some(String::from_utf8_lossy(text).into_owned())
        }
        _ => None,
    }
}

/// ABI-decodes `data` as a single string.
fn abi_string(data: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| {
        let word = data.get(at..at.checked_add(32)?)?;
        usize::try_from(U256::from_be_slice(word)).ok()
    };
    let at = word(0)?;
    let from = at.checked_add(32)?;
    data.get(from..from.checked_add(word(at)?)?)
}

/// Spec: the Solidity manual, "Panic via assert and Error via require".
fn panic_reason(code: U256) -> String {
    let text = match u64::try_from(code).unwrap_or(u64::MAX) {
        0x00 => "generic panic",
        0x01 => "assert(false)",
        0x11 => "arithmetic underflow or overflow",
        0x12 => "division or modulo by zero",
        0x21 => "enum overflow",
        0x22 => "invalid encoded storage byte array accessed",
        0x31 => "out-of-bounds array access; popping on an empty array",
        0x32 => "out-of-bounds access of an array or bytesN",
        0x41 => "out of memory",
        0x51 => "uninitialized function",
        _ => return format!("unknown panic code: {code:#x}"),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::hex;

    fn error(text: &[u8], length: usize) -> Vec<u8> {
        let mut data = ERROR.to_vec();
        data.extend(U256::from(32).to_be_bytes::<32>());
        data.extend(U256::from(length).to_be_bytes::<32>());
        data.extend(text);
        data
    }

    #[test]
    fn error_and_panic_of_solidity_are_decoded() {
        let padded = [b"user error".as_slice(), &[0; 22]].concat();
        assert_eq!(
            revert_reason(&error(&padded, 10)).as_deref(),
            Some("user error")
        );
        let panic = |code: u64| [&PANIC[..], &U256::from(code).to_be_bytes::<32>()].concat();
        assert_eq!(
            revert_reason(&panic(0x11)).as_deref(),
            Some("arithmetic underflow or overflow")
        );
        assert_eq!(
            revert_reason(&panic(0x99)).as_deref(),
            Some("unknown panic code: 0x99")
        );
    }

    #[test]
    fn data_that_is_no_solidity_error_gives_no_reason() {
        for data in [
            &[][..],
            &ERROR,
            &PANIC,
            &[1; 100],
            &error(b"short", 6),
            &error(b"", usize::MAX),
        ] {
            assert_eq!(revert_reason(data), None, "{}", hex::encode(data));
        }
    }
}
