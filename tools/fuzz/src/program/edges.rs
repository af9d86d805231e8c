//! Opcode groups at the edges of state-dependent prices: slots set and cleared, value sent to absent accounts, calls
//! with slightly too little gas, address collisions, deep stacks.

use super::Writer;
use niwaki_primitives::{Address, Fork, U256};
use rand::{Rng, seq::IndexedRandom};

/// Gas amounts close to prices, before Amsterdam and after.
pub(crate) const GAS_MARKS: [i64; 20] = [
    0, 100, 2_100, 2_300, 2_600, 3_000, 5_000, 6_000, 9_000, 11_300, 12_100, 14_300, 22_100,
    25_000, 32_000, 97_920, 110_020, 183_600, 197_900, 300_000,
];
/// Code sizes close to limits, bytes.
const CODE_SIZES: [u64; 12] = [
    0, 1, 2, 31, 33, 64, 1_000, 24_576, 24_577, 65_535, 65_536, 65_537,
];
/// Code that created contracts run: each destroys itself, stores, clears, pays or fails.
const RUNTIMES: [&[u8]; 8] = [
    &[0x33, 0xff],
    &[0x30, 0xff],
    &[0x60, 1, 0x60, 1, 0x55],
    &[0x5f, 0x60, 1, 0x55, 0x60, 1, 0x60, 2, 0x55],
    &[0x60, 0xee, 0xff],
    &[0x36, 0x5f, 0x55],
    &[0x5f, 0x54, 0x15, 0x5f, 0x55],
    &[0xfe],
];
/// Limit of nested programs.
const MAX_NESTING: u8 = 2;

impl Writer<'_> {
    pub(super) fn edge(&mut self) {
        match self.rng.random_range(0..100) {
            0..18 => self.store_several(),
            18..26 => self.flip(),
            26..30 => self.call_twice(),
            30..46 => self.pay(),
            46..58 => self.call_with_little(),
            58..74 => self.create_at_the_edge(),
            74..80 => self.deep_stack(),
            80..82 => self.slot_number(),
            82..91 => self.access_accounts(),
            91..95 => self.log_gas(),
            _ => self.self_destruct(),
        }
    }

    fn is_amsterdam(&mut self) -> bool {
        let fork = self.edges.unwrap_or_default();
        fork >= Fork::Amsterdam || self.rng.random_bool(0.02)
    }

    /// Writes a few values to one slot in order.
    fn store_several(&mut self) {
        let key = match self.rng.random_range(0..10) {
            0 => U256::MAX,
            1 => U256::from(1) << 128,
            _ => U256::from(self.rng.random_range(0..6u64)),
        };
        for _ in 0..self.rng.random_range(1..5) {
            if self.rng.random_bool(0.2) {
                self.push(key);
                self.op(0x54);
                self.drop_top();
            }
            let value = self.rng.random_range(0..3);
            self.push_u64(value);
            self.push(key);
            self.op(0x55);
            self.height -= 2;
        }
    }

    /// Sets a slot if it is zero, else clears it: undoes another frame's write.
    fn flip(&mut self) {
        self.key();
        self.code.extend([0x80, 0x54, 0x15, 0x90, 0x55]);
        self.height -= 1;
    }

    /// Calls one account several times with all gas, and logs the gas left.
    fn call_twice(&mut self) {
        let account = *self.accounts.choose(self.rng).expect("there are accounts");
        for _ in 0..self.rng.random_range(2..4) {
            self.small_ranges();
            self.push_u64(0);
            self.push(U256::from_be_bytes(account.into_word().0));
            self.code.extend([0x5a, 0xf1, 0x50]);
            self.height -= 6;
            self.log_gas();
        }
    }

    fn drop_top(&mut self) {
        self.op(0x50);
        self.height -= 1;
    }

    /// Pushes gas close to a price, or all.
    fn push_edge_gas(&mut self) {
        if self.rng.random_bool(0.25) {
            self.op(0x5a);
            self.height += 1;
            return;
        }
        let mark = *GAS_MARKS.choose(self.rng).expect("not empty");
        let gas = match self.rng.random_range(0..4) {
            0 => mark,
            1 => mark + self.rng.random_range(0..10),
            2 => mark - self.rng.random_range(1..10),
            _ => mark + self.rng.random_range(0..6_000),
        };
        self.push_u64(u64::try_from(gas).unwrap_or(0));
    }

    /// A call whose gas is on top of the stack; its success is popped or stored.
    fn finish_call(&mut self, opcode: u8) {
        self.op(opcode);
        self.height -= if opcode < 0xf3 { 6 } else { 5 };
        match self.rng.random_range(0..4) {
            0 => {
                self.key();
                self.op(0x55);
                self.height -= 2;
            }
            1 => (),
            _ => self.drop_top(),
        }
    }

    fn small_ranges(&mut self) {
        for _ in 0..2 {
            let length = *[0, 0, 32, 56].choose(self.rng).expect("not empty");
            self.push_u64(length);
            self.push_u64(0);
        }
    }

    fn push_value(&mut self) {
        let value = match self.rng.random_range(0..12) {
            0 => 0,
            1 => 1_000_000,
            _ => self.rng.random_range(1..40),
        };
        self.push_u64(value);
    }

    /// CALL or CALLCODE with value to any account.
    fn pay(&mut self) {
        let opcode = if self.rng.random_bool(0.85) {
            0xf1
        } else {
            0xf2
        };
        self.small_ranges();
        self.push_value();
        self.account();
        self.push_edge_gas();
        self.finish_call(opcode);
    }

    fn call_with_little(&mut self) {
        let opcode = *[0xf1, 0xf2, 0xf4, 0xfa]
            .choose(self.rng)
            .expect("not empty");
        self.small_ranges();
        if opcode < 0xf3 {
            self.push_u64(0);
        }
        self.account();
        self.push_edge_gas();
        self.finish_call(opcode);
    }

    /// Writes bytes to memory from its start.
    fn put(&mut self, bytes: &[u8]) {
        for (at, chunk) in bytes.chunks(32).enumerate() {
            let mut word = [0; 32];
            word[..chunk.len()].copy_from_slice(chunk);
            self.push(U256::from_be_bytes(word));
            self.push_u64(32 * at as u64);
            self.op(0x52);
            self.height -= 2;
        }
    }

    fn init_code(&mut self) -> Vec<u8> {
        match self.rng.random_range(0..12) {
            0..2 => {
                let size = *CODE_SIZES.choose(self.rng).expect("not empty");
                let size = u32::try_from(size).unwrap_or(0).to_be_bytes();
                vec![0x62, size[1], size[2], size[3], 0x5f, 0xf3]
            }
            2..6 => {
                let runtime = RUNTIMES.choose(self.rng).expect("not empty");
                let mut word = [0; 32];
                word[..runtime.len()].copy_from_slice(runtime);
                let size = u8::try_from(runtime.len()).unwrap_or(0);
                [
                    &[0x7f],
                    word.as_slice(),
                    &[0x5f, 0x52, 0x60, size, 0x5f, 0xf3],
                ]
                .concat()
            }
            // Stores, clears, and returns a word of memory as code.
            6 => vec![
                0x60, 1, 0x60, 2, 0x55, 0x5f, 0x60, 2, 0x55, 0x60, 3, 0x5f, 0xf3,
            ],
            7 => vec![0x60, 1, 0x60, 1, 0x55, 0x30, 0xff],
            8 => vec![0x60, 1, 0x60, 1, 0x55, 0x60, 0xee, 0xff],
            9 => vec![0x60, 1, 0x5f, 0x55, 0x60, 4, 0x5f, 0xfd],
            10 => vec![0xfe],
            _ => self.nested(),
        }
    }

    /// A nested program.
    fn nested(&mut self) -> Vec<u8> {
        if self.nesting >= MAX_NESTING {
            return vec![0x5f];
        }
        let pieces = self.rng.random_range(1..6);
        let mut writer = Writer::new(self.rng, self.accounts);
        writer.nesting = self.nesting + 1;
        writer.edges = self.edges;
        let mut code = writer.write(pieces);
        code.truncate(400);
        code
    }

    /// CREATE or CREATE2, then a call of the new contract.
    fn create_at_the_edge(&mut self) {
        let init = self.init_code();
        self.put(&init);
        let second = self.rng.random_bool(0.6);
        if second {
            let salt = self.rng.random_range(0..2);
            self.push_u64(salt);
        }
        let size = match self.rng.random_range(0..60) {
            0 => 131_072,
            1 => 131_073,
            2 => 49_153,
            _ => init.len() as u64,
        };
        self.push_u64(size);
        self.push_u64(0);
        match self.rng.random_range(0..3) {
            0 => self.push_value(),
            _ => self.push_u64(0),
        }
        self.op(if second { 0xf5 } else { 0xf0 });
        self.height -= if second { 3 } else { 2 };
        match self.rng.random_range(0..5) {
            0 | 1 => self.call_top(),
            2 => {
                self.key();
                self.op(0x55);
                self.height -= 2;
            }
            3 => self.op(0x31),
            _ => (),
        }
    }

    /// Calls the address on top of the stack, which stays.
    fn call_top(&mut self) {
        for _ in 0..4 {
            self.push_u64(0);
        }
        if self.rng.random_bool(0.4) {
            self.push_value();
        } else {
            self.push_u64(0);
        }
        // DUP6: value and two ranges are below.
        self.op(0x85);
        self.height += 1;
        self.push_edge_gas();
        self.op(0xf1);
        self.height -= 6;
        self.drop_top();
    }

    /// Many words, then DUPN, SWAPN or EXCHANGE with any immediate.
    fn deep_stack(&mut self) {
        if !self.is_amsterdam() {
            return;
        }
        let words = self.rng.random_range(1..60);
        for word in 0..words {
            self.push_u64(word);
        }
        for _ in 0..self.rng.random_range(1..4) {
            let opcode = self.rng.random_range(0xe6..=0xe8);
            let immediate = match self.rng.random_range(0..8) {
                0 => self.rng.random(),
                1 => *[0x00, 0x5a, 0x5b, 0x7f, 0x80, 0xff, 0x51, 0x52]
                    .choose(self.rng)
                    .expect("not empty"),
                // 17 to 44 for the first two.
                _ if opcode < 0xe8 => self.rng.random_range(0x80..0x9c),
                _ => self.rng.random_range(0x80..0xff),
            };
            self.op(opcode);
            self.op(immediate);
            if opcode == 0xe6 {
                self.height += 1;
            }
        }
        if self.rng.random_bool(0.7) {
            self.key();
            self.op(0x55);
            self.height -= 2;
        }
        while self.height > 10 {
            self.drop_top();
        }
    }

    fn slot_number(&mut self) {
        if self.is_amsterdam() {
            self.op(0x4b);
            self.height += 1;
        }
    }

    /// BALANCE and similar opcodes on several accounts.
    fn access_accounts(&mut self) {
        for _ in 0..self.rng.random_range(1..4) {
            if self.rng.random_bool(0.25) {
                let size = self.rng.random_range(0..40);
                self.push_u64(size);
                self.push_u64(0);
                self.push_u64(0);
                self.account();
                self.op(0x3c);
                self.height -= 4;
            } else {
                self.account();
                self.op_of(&[0x31, 0x3b, 0x3f]);
                self.drop_top();
            }
        }
    }

    /// Logs the gas left.
    fn log_gas(&mut self) {
        self.op(0x5a);
        self.height += 1;
        self.push_u64(0);
        self.op(0x52);
        self.height -= 2;
        self.push_u64(32);
        self.push_u64(0);
        self.op(0xa0);
        self.height -= 2;
    }

    fn self_destruct(&mut self) {
        match self.rng.random_range(0..3) {
            0 => self.op(0x30),
            1 => {
                let empty = Address::repeat_byte(self.rng.random_range(0xe0..0xe4));
                self.push(U256::from_be_bytes(empty.into_word().0));
            }
            _ => self.account(),
        }
        self.op(0xff);
    }
}
