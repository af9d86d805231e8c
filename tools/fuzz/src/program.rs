//! Random programs that do not fail at once: operands are pushed before they are used, jumps lead to destinations,
//! loops end, and most calls go to accounts that exist.

mod edges;

pub(crate) use edges::GAS_MARKS;

use niwaki_primitives::{Address, Fork, U256};
use rand::{Rng, rngs::SmallRng, seq::IndexedRandom};

/// Memory that programs mostly use, bytes.
const MEMORY: u64 = 320;

/// Writes one program.
pub(crate) struct Writer<'a> {
    rng: &'a mut SmallRng,
    /// Addresses that code may name.
    accounts: &'a [Address],
    code: Vec<u8>,
    /// Words on the stack, as tracked.
    height: usize,
    /// The fork whose state-dependent prices are preferred, if any.
    edges: Option<Fork>,
    /// Nesting depth of programs in programs.
    nesting: u8,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(rng: &'a mut SmallRng, accounts: &'a [Address]) -> Self {
        Self {
            rng,
            accounts,
            code: Vec::new(),
            height: 0,
            edges: None,
            nesting: 0,
        }
    }

    /// Prefers opcodes with state-dependent prices of `fork`.
    pub(crate) fn at_edges_of(mut self, fork: Fork) -> Self {
        self.edges = Some(fork);
        self
    }

    /// A program of about `pieces` pieces, sometimes with bytes flipped.
    pub(crate) fn write(mut self, pieces: usize) -> Vec<u8> {
        for _ in 0..pieces {
            self.piece();
        }
        if self.rng.random_bool(0.6) {
            self.range();
            let opcode = if self.rng.random_bool(0.8) {
                0xf3
            } else {
                0xfd
            };
            self.op(opcode);
        }
        if self.rng.random_bool(0.08) && !self.code.is_empty() {
            for _ in 0..self.rng.random_range(1..4) {
                let at = self.rng.random_range(0..self.code.len());
                self.code[at] = self.rng.random();
            }
        }
        self.code
    }

    fn op(&mut self, opcode: u8) {
        self.code.push(opcode);
    }

    fn op_of(&mut self, opcodes: &[u8]) {
        let opcode = *opcodes.choose(self.rng).expect("there is a choice");
        self.op(opcode);
    }

    /// Pushes a value in its minimal bytes, or sometimes in more.
    fn push(&mut self, value: U256) {
        let bytes = value.to_be_bytes::<32>();
        let needed = 32 - bytes.iter().take_while(|byte| **byte == 0).count();
        let width = if self.rng.random_bool(0.1) {
            self.rng.random_range(needed.max(1)..=32)
        } else {
            needed.max(1)
        };
        self.op(0x5f + u8::try_from(width).expect("at most 32"));
        self.code.extend_from_slice(&bytes[32 - width..]);
        self.height += 1;
    }

    fn push_u64(&mut self, value: u64) {
        self.push(U256::from(value));
    }

    /// A value, often at an edge.
    fn value(&mut self) -> U256 {
        let rng = &mut *self.rng;
        match rng.random_range(0..10) {
            0 => U256::ZERO,
            1 => U256::from(1),
            2 => U256::MAX,
            3 => U256::from(1) << rng.random_range(0..256),
            4 => (U256::from(1) << rng.random_range(1..256)) - U256::from(1),
            5 | 6 => U256::from(rng.random_range(0..300u64)),
            7 => U256::from(rng.random::<u64>()),
            8 => U256::from(rng.random::<u128>()),
            _ => U256::from_limbs(rng.random()),
        }
    }

    /// Pushes a memory offset, rarely a very expensive one.
    fn offset(&mut self) {
        let place = match self.rng.random_range(0..200) {
            0 => self.value(),
            1..8 => U256::from(self.rng.random_range(0..100_000u64)),
            _ => U256::from(self.rng.random_range(0..MEMORY)),
        };
        self.push(place);
    }

    /// Pushes length and offset of a range of memory, the offset on top.
    fn range(&mut self) {
        let length = match self.rng.random_range(0..200) {
            0 => self.value(),
            1..5 => U256::from(self.rng.random_range(0..50_000u64)),
            5..60 => U256::ZERO,
            _ => U256::from(self.rng.random_range(0..MEMORY)),
        };
        self.push(length);
        self.offset();
    }

    fn account(&mut self) {
        let address = match self.rng.random_range(0..12) {
            0 => Address::from(self.rng.random::<[u8; 20]>()),
            1..5 => Address::with_last_byte(self.rng.random_range(0..0x13)),
            5 => Address::left_padding_from(&[1, 0]),
            _ => *self.accounts.choose(self.rng).expect("there are accounts"),
        };
        self.push(U256::from_be_bytes(address.into_word().0));
    }

    fn key(&mut self) {
        let key = self.rng.random_range(0..6);
        self.push_u64(key);
    }

    fn pop_down(&mut self) {
        if self.height > 12 {
            self.op(0x50);
            self.height -= 1;
        }
    }

    /// One meaningful group of opcodes.
    fn piece(&mut self) {
        self.pop_down();
        if self.edges.is_some() && self.rng.random_bool(0.4) {
            return self.edge();
        }
        match self.rng.random_range(0..100) {
            0..24 => self.compute(),
            24..34 => self.shuffle(),
            34..46 => self.memory(),
            46..60 => self.storage(),
            60..70 => self.environment(),
            70..78 => self.copy(),
            78..82 => self.log(),
            82..88 => self.branch(),
            88..95 => self.call(),
            95..97 => self.create(),
            97 => self.repeat(),
            98 => self.code_end(),
            _ => {
                let opcode = self.rng.random();
                self.op(opcode);
            }
        }
    }

    fn compute(&mut self) {
        const ONE: [u8; 3] = [0x15, 0x19, 0x1e];
        const TWO: [u8; 20] = [
            0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x0a, 0x0b, 0x10, 0x11, 0x12, 0x13, 0x14,
            0x16, 0x17, 0x18, 0x1a, 0x1b, 0x1c,
        ];
        for _ in 0..self.rng.random_range(1..4) {
            let operand = self.value();
            self.push(operand);
        }
        let (opcode, takes) = match self.rng.random_range(0..10) {
            0 => (*ONE.choose(self.rng).expect("not empty"), 1),
            1 => (0x08, 3),
            2 => (0x09, 3),
            3 => (0x1d, 2),
            _ => (*TWO.choose(self.rng).expect("not empty"), 2),
        };
        while self.height < takes {
            let operand = self.value();
            self.push(operand);
        }
        if opcode == 0x1e && self.rng.random_bool(0.7) {
            return;
        }
        self.op(opcode);
        self.height -= takes - 1;
    }

    fn shuffle(&mut self) {
        while self.height < 2 {
            let value = self.value();
            self.push(value);
        }
        let reach = self.height.min(16);
        let small = |n: usize| u8::try_from(n).expect("at most 16");
        if self.rng.random_bool(0.5) {
            let n = self.rng.random_range(1..=reach);
            self.op(0x7f + small(n));
            self.height += 1;
        } else {
            let n = self.rng.random_range(1..reach.max(2));
            self.op(0x8f + small(n));
        }
    }

    fn memory(&mut self) {
        match self.rng.random_range(0..6) {
            choice @ 0..3 => {
                let value = self.value();
                self.push(value);
                self.offset();
                self.op(if choice == 2 { 0x53 } else { 0x52 });
                self.height -= 2;
            }
            3 => {
                self.offset();
                self.op(0x51);
            }
            4 => {
                self.range();
                self.op(0x20);
                self.height -= 1;
            }
            _ => {
                self.op(0x59);
                self.height += 1;
            }
        }
    }

    fn storage(&mut self) {
        let transient = self.rng.random_bool(0.15);
        if self.rng.random_bool(0.5) {
            self.key();
            self.op(if transient { 0x5c } else { 0x54 });
        } else {
            let value = U256::from(self.rng.random_range(0..3u64));
            self.push(value);
            self.key();
            self.op(if transient { 0x5d } else { 0x55 });
            self.height -= 2;
        }
    }

    fn environment(&mut self) {
        const ABOUT: [u8; 20] = [
            0x30, 0x32, 0x33, 0x34, 0x36, 0x38, 0x3a, 0x3d, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46,
            0x47, 0x48, 0x4a, 0x58, 0x5a, 0x59,
        ];
        match self.rng.random_range(0..5) {
            0 => {
                self.account();
                self.op_of(&[0x31, 0x3b, 0x3f]);
            }
            1 => {
                self.offset();
                self.op(0x35);
            }
            2 => {
                let number = self.rng.random_range(740..1010);
                self.push_u64(number);
                self.op_of(&[0x40, 0x49]);
            }
            _ => {
                self.op_of(&ABOUT);
                self.height += 1;
            }
        }
    }

    fn copy(&mut self) {
        let length = self.rng.random_range(0..100);
        self.push_u64(length);
        self.offset();
        self.offset();
        match self.rng.random_range(0..5) {
            0 => self.op(0x37),
            1 => self.op(0x39),
            2 => self.op(0x3e),
            3 => self.op(0x5e),
            _ => {
                self.account();
                self.op(0x3c);
                self.height -= 1;
            }
        }
        self.height -= 3;
    }

    fn log(&mut self) {
        let topics = self.rng.random_range(0..=4);
        for _ in 0..topics {
            let topic = self.value();
            self.push(topic);
        }
        self.range();
        self.op(0xa0 + topics);
        self.height -= usize::from(topics) + 2;
    }

    /// Skips a few pieces, or not.
    fn branch(&mut self) {
        let conditional = self.rng.random_bool(0.7);
        if conditional {
            let condition = self.rng.random_range(0..2);
            self.push_u64(condition);
        }
        self.op(0x61);
        let hole = self.code.len();
        self.code.extend([0, 0]);
        self.op(if conditional { 0x57 } else { 0x56 });
        if conditional {
            self.height -= 1;
        }
        let before = self.height;
        for _ in 0..self.rng.random_range(0..3) {
            self.compute();
            self.op(0x50);
            self.height = before;
        }
        let target = u16::try_from(self.code.len()).unwrap_or(0);
        self.code[hole..hole + 2].copy_from_slice(&target.to_be_bytes());
        self.op(0x5b);
    }

    /// A loop that counts down.
    fn repeat(&mut self) {
        let turns = self.rng.random_range(1..40);
        self.push_u64(turns);
        let start = u16::try_from(self.code.len()).unwrap_or(0);
        self.op(0x5b);
        let before = self.height;
        self.storage();
        while self.height > before {
            self.op(0x50);
            self.height -= 1;
        }
        // counter - 1, left on the stack while it is not zero
        self.code.extend([0x60, 1, 0x90, 0x03, 0x80, 0x61]);
        self.code.extend(start.to_be_bytes());
        self.op(0x57);
    }

    fn call(&mut self) {
        let opcode = *[0xf1, 0xf1, 0xf2, 0xf4, 0xfa]
            .choose(self.rng)
            .expect("not empty");
        self.range();
        self.range();
        if opcode < 0xf3 {
            let value = match self.rng.random_range(0..8) {
                0 => self.value(),
                1 | 2 => U256::from(self.rng.random_range(1..1000u64)),
                _ => U256::ZERO,
            };
            self.push(value);
        }
        self.account();
        match self.rng.random_range(0..4) {
            0 => {
                self.op(0x5a);
                self.height += 1;
            }
            1 => {
                let gas = self.value();
                self.push(gas);
            }
            _ => {
                let gas = self.rng.random_range(0..100_000);
                self.push_u64(gas);
            }
        }
        self.op(opcode);
        self.height -= if opcode < 0xf3 { 6 } else { 5 };
    }

    /// Writes init code to memory and creates with it.
    fn create(&mut self) {
        let mut init = [0u8; 32];
        let body: &[u8] = match self.rng.random_range(0..5) {
            // Returns 10 zero bytes; reverts; returns code that begins with 0xef; self-destructs.
            0 => &[0x60, 10, 0x60, 0, 0xf3],
            1 => &[0x60, 4, 0x60, 0, 0xfd],
            2 => &[0x60, 0xef, 0x60, 0, 0x53, 0x60, 1, 0x60, 0, 0xf3],
            3 => &[0x33, 0xff],
            // Stores, then returns a word of code.
            _ => &[
                0x60, 1, 0x60, 2, 0x55, 0x60, 0x33, 0x60, 0, 0x53, 0x60, 3, 0x60, 0, 0xf3,
            ],
        };
        init[..body.len()].copy_from_slice(body);
        self.push(U256::from_be_bytes(init));
        self.push_u64(0);
        self.op(0x52);
        self.height -= 2;
        let second = self.rng.random_bool(0.5);
        if second {
            let salt = self.rng.random_range(0..2);
            self.push_u64(salt);
        }
        let length = body.len() as u64;
        self.push_u64(length);
        self.push_u64(0);
        let value = self.rng.random_range(0..2);
        self.push_u64(value);
        self.op(if second { 0xf5 } else { 0xf0 });
        self.height -= if second { 3 } else { 2 };
    }

    fn code_end(&mut self) {
        match self.rng.random_range(0..4) {
            0 => {
                self.account();
                self.op(0xff);
            }
            1 => self.op(0x00),
            2 => self.op(0xfe),
            _ => {
                self.range();
                self.op(0xfd);
            }
        }
    }
}
