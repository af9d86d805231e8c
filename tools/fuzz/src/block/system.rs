//! The system contracts of a state: the EIPs' code, and queues with entries.

use alloy_eips::{eip7002, eip7251, eip8282};
use niwaki_primitives::{Address, Bytes, U256, address, b256, hex};
use niwaki_testkit::genesis::system_contracts;
use niwaki_testkit::{MemoryAccount, MemoryState};
use rand::{Rng, rngs::SmallRng};

/// Address of mainnet's deposit contract. Here a stand-in logs its input as the event.
pub(crate) const DEPOSIT_CONTRACT: Address = address!("00000000219ab540356cbb839cbe05303d7705fa");

/// A contract that queues requests: address, code, slots of one request, bytes of its input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) address: Address,
    pub(crate) input_bytes: usize,
    slots: u64,
}

pub(crate) const QUEUES: [Queue; 4] = [
    Queue {
        address: eip7002::WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
        input_bytes: 56,
        slots: 3,
    },
    Queue {
        address: eip7251::CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
        input_bytes: 96,
        slots: 4,
    },
    Queue {
        address: eip8282::BUILDER_DEPOSIT_CONTRACT_ADDRESS,
        input_bytes: 184,
        slots: 6,
    },
    Queue {
        address: eip8282::BUILDER_EXIT_CONTRACT_ADDRESS,
        input_bytes: 48,
        slots: 3,
    },
];

/// Adds them to `state`.
pub(crate) fn install(rng: &mut SmallRng, state: &mut MemoryState) {
    for (address, code) in system_contracts() {
        state.insert(*address, contract(code.clone()));
    }
    for queue in QUEUES {
        if rng.random_bool(0.3) {
            let account = state.accounts.get_mut(&queue.address);
            fill(rng, &queue, account.expect("installed above"));
        }
    }
    state.insert(DEPOSIT_CONTRACT, contract(deposit_stand_in()));
}

fn contract(code: Bytes) -> MemoryAccount {
    MemoryAccount {
        nonce: 1,
        code: code.into(),
        ..MemoryAccount::default()
    }
}

/// Slot 0 is the excess, 1 the count, 2 the head, 3 the tail, and the queue begins at 4.
fn fill(rng: &mut SmallRng, queue: &Queue, account: &mut MemoryAccount) {
    let head = rng.random_range(0..3);
    let tail = head + rng.random_range(0..5);
    let known = [rng.random_range(0..20), rng.random_range(0..4), head, tail];
    for (slot, value) in (0u64..).zip(known) {
        if value > 0 {
            account.storage.insert(U256::from(slot), U256::from(value));
        }
    }
    for slot in head * queue.slots..tail * queue.slots {
        let word = U256::from_limbs(rng.random());
        account.storage.insert(U256::from(4 + slot), word);
    }
}

/// `LOG1` of the whole input with the topic of `DepositEvent`.
fn deposit_stand_in() -> Bytes {
    let topic = b256!("649bbc62d0e31342afea4e5cd82d4049e7e1ee912fc0889aa790803be39038c5");
    [
        hex!("365f5f377f").as_slice(),
        topic.as_slice(),
        &hex!("365fa100"),
    ]
    .concat()
    .into()
}

/// The data of a deposit event, sometimes of a wrong length. (go-ethereum does not check its offsets.)
pub(crate) fn deposit_event(rng: &mut SmallRng) -> Vec<u8> {
    const FIELDS: [(usize, u16, u16); 5] = [
        (0, 160, 48),
        (32, 256, 32),
        (64, 320, 8),
        (96, 384, 96),
        (128, 512, 8),
    ];
    let mut event = vec![0; 576];
    for (at, start, length) in FIELDS {
        event[at + 30..at + 32].copy_from_slice(&start.to_be_bytes());
        let start = usize::from(start);
        event[start + 30..start + 32].copy_from_slice(&length.to_be_bytes());
        rng.fill(&mut event[start + 32..start + 32 + usize::from(length)]);
    }
    if rng.random_bool(0.05) {
        event.pop();
    }
    event
}

/// The input of a request, sometimes of a wrong length.
pub(crate) fn request_input(rng: &mut SmallRng, queue: &Queue) -> Vec<u8> {
    let mut bytes = queue.input_bytes;
    if rng.random_bool(0.1) {
        bytes = rng.random_range(0..200);
    }
    let mut input = vec![0; bytes];
    rng.fill(input.as_mut_slice());
    // The amount of a builder's deposit in gwei: about one ether.
    if queue.input_bytes == 184 && input.len() >= 88 {
        let amount: u64 = 1_000_000_000 + rng.random_range(0..10) - 1;
        input[80..88].copy_from_slice(&amount.to_be_bytes());
    }
    input
}
