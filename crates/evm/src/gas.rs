//! The gas schedule of each fork, as differences from the fork before.
//!
//! Static prices are in the opcode table; these are the prices and limits that opcode bodies compute with.

use niwaki_primitives::Fork;

/// Access of a warm account (EIP-2929), where it is not the static price of an opcode.
pub(crate) const WARM_ACCESS: i64 = 100;

/// The first change that a transaction makes to an account (EIP-8038).
pub const ACCOUNT_WRITE: i64 = 9_000;

/// How SSTORE is priced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sstore {
    /// By the current and the new value alone.
    Legacy,
    /// By the original, the current and the new value (EIP-1283, EIP-2200, EIP-2929, EIP-3529).
    Net,
}

/// Prices and limits of one fork that opcode bodies need. Gas unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GasSchedule {
    /// Added to a state access that is the first of its account in the transaction (EIP-2929).
    pub cold_account: i64,
    /// Added to an SLOAD that is the first of its slot in the transaction (EIP-2929).
    pub cold_slot: i64,
    /// Per byte of the exponent of EXP.
    pub exp_byte: i64,
    /// Which rule prices SSTORE.
    pub sstore: Sstore,
    /// An SSTORE that changes nothing, or a slot already changed.
    pub sstore_noop: i64,
    /// An SSTORE that makes a zero slot non-zero.
    pub sstore_set: i64,
    /// An SSTORE of another non-zero value, or of zero.
    pub sstore_reset: i64,
    /// Added to an SSTORE that is the first access of its slot (EIP-2929).
    pub sstore_cold: i64,
    /// Refund for clearing a slot.
    pub sstore_clear_refund: i64,
    /// SSTORE fails with this much gas or less left (EIP-2200); -1 for no such rule.
    pub sstore_sentry: i64,
    /// A call that creates its target account.
    pub call_new_account: i64,
    /// A call that transfers value.
    pub call_value: i64,
    /// Gas given to the callee of a call with value.
    pub call_stipend: i64,
    /// Whether a call's gas is capped at all but one 64th (EIP-150).
    pub all_but_one_64th: bool,
    /// Whether touched empty accounts are deleted (EIP-161).
    pub clears_empty: bool,
    /// SELFDESTRUCT to an account that does not exist (EIP-150, EIP-161).
    pub selfdestruct_new_account: i64,
    /// SELFDESTRUCT to a cold account (EIP-2929).
    pub selfdestruct_cold: i64,
    /// Refund of the first SELFDESTRUCT of an account (none from EIP-3529 on).
    pub selfdestruct_refund: i64,
    /// Whether SELFDESTRUCT deletes only accounts created in this transaction (EIP-6780).
    pub selfdestruct_only_new: bool,
    /// Per byte of deployed code.
    pub code_deposit: i64,
    /// Per word of deployed code (EIP-8037).
    pub code_deposit_word: i64,
    /// Whether a creation that can't pay its deposit fails (EIP-2) rather than leave no code.
    pub deposit_must_be_paid: bool,
    /// Longest code that can be deployed, bytes (EIP-170).
    pub max_code_bytes: usize,
    /// Longest init code, bytes (EIP-3860).
    pub max_init_code_bytes: usize,
    /// Per word of init code (EIP-3860).
    pub init_code_word: i64,
    /// Whether code may not begin with 0xef (EIP-3541).
    pub rejects_ef: bool,
    /// Nonce of a new contract (EIP-161).
    pub contract_nonce: u64,
    /// Whether code may delegate to another account's (EIP-7702).
    pub delegates: bool,
    /// Prices in state gas, all zero before Amsterdam.
    pub state: StatePrices,
    /// Whether transfers of ether emit a log (EIP-7708).
    pub logs_transfers: bool,
    /// Whether a destroyed account keeps its balance (EIP-8246).
    pub destroyed_keep_balance: bool,
    /// Whether an account with nothing but storage is a collision for a creation (EIP-7610); not in Amsterdam.
    pub storage_bars_creation: bool,
}

/// Prices of state growth, state gas (EIP-8037).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatePrices {
    /// A slot that becomes non-zero and was zero before the transaction.
    pub slot: i64,
    /// A new account.
    pub account: i64,
    /// A byte of deployed code.
    pub code_byte: i64,
    /// The first delegation of an account (EIP-7702).
    pub delegation: i64,
}

impl StatePrices {
    /// Nothing costs state gas.
    const NONE: Self = Self::at(0);

    /// The prices where a byte of state costs `byte`.
    const fn at(byte: i64) -> Self {
        Self {
            slot: 64 * byte,
            account: 120 * byte,
            code_byte: byte,
            delegation: 23 * byte,
        }
    }
}

impl GasSchedule {
    const FRONTIER: Self = Self {
        cold_account: 0,
        cold_slot: 0,
        exp_byte: 10,
        sstore: Sstore::Legacy,
        sstore_noop: 5_000,
        sstore_set: 20_000,
        sstore_reset: 5_000,
        sstore_cold: 0,
        sstore_clear_refund: 15_000,
        sstore_sentry: -1,
        call_new_account: 25_000,
        call_value: 9_000,
        call_stipend: 2_300,
        all_but_one_64th: false,
        clears_empty: false,
        selfdestruct_new_account: 0,
        selfdestruct_cold: 0,
        selfdestruct_refund: 24_000,
        selfdestruct_only_new: false,
        code_deposit: 200,
        code_deposit_word: 0,
        deposit_must_be_paid: false,
        max_code_bytes: usize::MAX,
        max_init_code_bytes: usize::MAX,
        init_code_word: 0,
        rejects_ef: false,
        contract_nonce: 0,
        delegates: false,
        state: StatePrices::NONE,
        logs_transfers: false,
        destroyed_keep_balance: false,
        storage_bars_creation: true,
    };

    /// Whether state growth is paid in state gas (EIP-8037).
    pub const fn has_state_gas(&self) -> bool {
        self.state.account > 0
    }

    /// The prices of `fork`.
    pub const fn of(fork: Fork) -> Self {
        let at = fork as u8;
        let mut gas = Self::FRONTIER;
        if at >= Fork::Homestead as u8 {
            gas.deposit_must_be_paid = true; // EIP-2
        }
        if at >= Fork::TangerineWhistle as u8 {
            gas.all_but_one_64th = true; // EIP-150
            gas.selfdestruct_new_account = 25_000;
        }
        if at >= Fork::SpuriousDragon as u8 {
            gas.exp_byte = 50; // EIP-160
            gas.clears_empty = true; // EIP-161
            gas.contract_nonce = 1;
            gas.max_code_bytes = 0x6000; // EIP-170
        }
        if fork as u8 == Fork::Constantinople as u8 {
            gas.sstore = Sstore::Net; // EIP-1283, taken back in Petersburg
            gas.sstore_noop = 200;
        }
        if at >= Fork::Istanbul as u8 {
            gas.sstore = Sstore::Net; // EIP-2200
            gas.sstore_noop = 800;
            gas.sstore_sentry = 2_300;
        }
        if at >= Fork::Berlin as u8 {
            gas.cold_account = 2_500; // EIP-2929, on top of the warm price
            gas.cold_slot = 2_000;
            gas.sstore_noop = 100;
            gas.sstore_reset = 2_900;
            gas.sstore_cold = 2_100;
            gas.selfdestruct_cold = 2_600;
        }
        if at >= Fork::London as u8 {
            gas.sstore_clear_refund = 4_800; // EIP-3529
            gas.selfdestruct_refund = 0;
            gas.rejects_ef = true; // EIP-3541
        }
        if at >= Fork::Shanghai as u8 {
            gas.max_init_code_bytes = 0xc000; // EIP-3860
            gas.init_code_word = 2;
        }
        if at >= Fork::Cancun as u8 {
            gas.selfdestruct_only_new = true; // EIP-6780
        }
        if at >= Fork::Prague as u8 {
            gas.delegates = true; // EIP-7702
        }
        if at >= Fork::Amsterdam as u8 {
            gas.change_to_amsterdam();
        }
        gas
    }

    const fn change_to_amsterdam(&mut self) {
        /// EIP-8038: what writing to a slot costs.
        const STORAGE_WRITE: i64 = 10_000;
        self.state = StatePrices::at(1_530); // EIP-8037
        self.code_deposit = 0;
        self.code_deposit_word = 6;
        self.call_new_account = 0;
        self.cold_account = 2_900; // EIP-8038, on top of the warm price
        self.sstore_cold = 2_000;
        self.sstore_set = STORAGE_WRITE + self.sstore_noop;
        self.sstore_reset = STORAGE_WRITE + self.sstore_noop;
        self.sstore_clear_refund = 11_616;
        self.call_value = ACCOUNT_WRITE + self.call_stipend;
        self.selfdestruct_cold = 3_000;
        self.selfdestruct_new_account = ACCOUNT_WRITE;
        self.max_code_bytes = 0x1_0000; // EIP-7954
        self.max_init_code_bytes = 0x2_0000;
        self.logs_transfers = true; // EIP-7708
        self.destroyed_keep_balance = true; // EIP-8246
        self.storage_bars_creation = false;
    }
}
