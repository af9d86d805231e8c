//! `niwaki-evm cartevm`: times every opcode alone, or every pair of opcodes, repeated as densely as a program can; or
//! known attacks.
//!
//! It shows which opcodes are slow for their gas. The batches of a case alternate with those of revm; the result of a
//! case is the median of its batches.

mod machine;
mod plot;
mod program;
mod report;
mod worst;

use crate::run::fork_of;
use clap::Args;
use eyre::{Result, WrapErr, ensure, eyre};
use machine::{Ours, Revm};
use niwaki_evm::{Dispatch, Table};
use niwaki_primitives::{Address, Bytes, Fork};
use program::Program;
pub(crate) use report::quantile;
use report::{Case, Report};
use std::io::IsTerminal;
use std::path::PathBuf;
use worst::Attack;

/// Number of the programs' block.
const NUMBER: u64 = 1_000;
/// How often a program can run all its units before its gas is used, at least.
const MIN_LOOPS: u64 = 8;

/// Options of `cartevm`.
#[derive(Debug, Args)]
pub(crate) struct CartOptions {
    /// Fork whose opcodes and prices apply.
    #[arg(long, default_value = "Osaka")]
    fork: String,
    /// Gas of each run.
    #[arg(
        long, value_name = "GAS", default_value_t = 10_000_000,
        value_parser = clap::value_parser!(u64).range(..=1_000_000_000_000)
    )]
    gas: u64,
    /// Approximate bytes of each program.
    #[arg(
        long, value_name = "BYTES", default_value_t = 24_576,
        value_parser = clap::value_parser!(u32).range(512..=60_000)
    )]
    code_size: u32,
    /// Only these opcodes, such as `MULMOD,SLOAD`; with --pairs the first of each pair, with --worst attacks.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Every pair of opcodes instead of each alone.
    #[arg(long)]
    pairs: bool,
    /// Known attacks instead: state swept cold, large code, creations, deep calls, precompiled contracts.
    #[arg(long, conflicts_with = "pairs")]
    worst: bool,
    /// Runs of each case, after one to warm up.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,
    /// Alternates with revm.
    #[arg(long)]
    revm: bool,
    /// Number of slowest cases to print.
    #[arg(long, value_name = "N", default_value_t = 20)]
    slowest: usize,
    /// Writes every case as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draws every case as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Dispatch of the interpreter: fused, threaded or loop.
    #[arg(long, default_value_t)]
    dispatch: Dispatch,
}

/// Runs the measurement.
pub(crate) fn run(options: &CartOptions) -> Result<()> {
    let fork = fork_of(&options.fork)?;
    // All runs are equal, so each must be executed, not taken from the cache.
    niwaki_crypto::set_precompile_result_bytes(0);
    let measures: Vec<Measure<'_>> = match options.worst {
        true => options.attacks(fork)?,
        false => options
            .cases(Table::of(fork))?
            .into_iter()
            .map(|opcodes| -> Measure<'_> { Box::new(move || options.measure(fork, &opcodes)) })
            .collect(),
    };
    let (mut measured, mut left_out) = (Vec::new(), Vec::new());
    let count = measures.len();
    for (at, measure) in measures.into_iter().enumerate() {
        progress(at, count);
        match measure()? {
            Ok(case) => measured.push(case),
            Err(reason) => left_out.push(reason),
        }
    }
    progress(count, count);
    ensure!(
        !measured.is_empty(),
        "no program ran to its end ({}); --gas {} may not be enough: give more, or a smaller --code-size",
        left_out.first().map_or("", String::as_str),
        options.gas
    );
    let report = Report::new(fork, options, measured, left_out);
    report.print(options.slowest);
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, json).wrap_err_with(|| format!("can't write {}", path.display()))?;
    }
    if let Some(path) = &options.svg {
        std::fs::write(path, plot::svg(&report))
            .wrap_err_with(|| format!("can't write {}", path.display()))?;
    }
    Ok(())
}

/// Measures a case; the inner error is its name and why its program does not complete once.
type Measure<'a> = Box<dyn FnOnce() -> Result<Result<Case, String>> + 'a>;

/// Prints the progress on a terminal.
fn progress(at: usize, of: usize) {
    if std::io::stderr().is_terminal() {
        let end = if at == of { "\n" } else { "" };
        eprint!("\r{at} of {of} cases{end}");
    }
}

impl CartOptions {
    /// The opcodes of each case.
    fn cases(&self, table: &Table) -> Result<Vec<Vec<u8>>> {
        let all = (0..=u8::MAX).filter(|opcode| table.info(*opcode).is_some());
        let all: Vec<u8> = all.collect();
        let selected = self.only.iter().map(|name| {
            let is_named = |opcode: &&u8| {
                let mnemonic = table.mnemonic(**opcode);
                mnemonic.is_some_and(|mnemonic| mnemonic.eq_ignore_ascii_case(name))
            };
            all.iter().find(is_named).copied().ok_or_else(|| {
                eyre!(
                    "--only {name} is no opcode of {}; give mnemonics such as MULMOD",
                    self.fork
                )
            })
        });
        let mut selected = selected.collect::<Result<Vec<_>>>()?;
        if selected.is_empty() {
            selected.clone_from(&all);
        }
        Ok(match self.pairs {
            false => selected.into_iter().map(|opcode| vec![opcode]).collect(),
            true => selected
                .iter()
                .flat_map(|first| all.iter().map(|second| vec![*first, *second]))
                .collect(),
        })
    }

    /// Measures `opcodes`; the inner error is as for [`Measure`].
    #[expect(clippy::cast_precision_loss, reason = "printed only")]
    fn measure(&self, fork: Fork, opcodes: &[u8]) -> Result<Result<Case, String>> {
        let size = usize::try_from(self.code_size)?;
        let mut program = Program::of(Table::of(fork), opcodes, size)
            .ok_or_else(|| eyre!("an opcode is missing from {fork}"))?;
        let straight = |program: &Program, count| {
            let code = program.straight(count);
            Ours::new(&program.contracts, code, fork, self.dispatch).run(self.gas)
        };
        // Fewer units if they are expensive, as creations are, so that the program loops a few times.
        if let [Ok((_, one)), Ok((_, two))] = [1, 2].map(|count| straight(&program, count)) {
            let limit = self.gas / MIN_LOOPS / (two - one).max(1);
            program.count = program.count.min(usize::try_from(limit)?.max(2));
        }
        // The first run of the units may cost more gas than the others.
        let runs = [0, 1, program.count].map(|count| straight(&program, count));
        if let Some(Err(error)) = runs.iter().find(|run| run.is_err()) {
            return Ok(Err(format!("{}: {error}", program.name)));
        }
        let [none, one, all] = runs.map(|run| run.map_or(0, |(_, gas)| gas));
        let each = all.saturating_sub(one) as f64 / (program.count - 1).max(1) as f64;
        let code = program.looped(all + all / 8 + program::MAX_CALL_GAS);
        let (ours, revm) = self.machines(fork, &program.contracts, code);
        let ran = |gas: u64| gas.saturating_sub(none) as f64 / each;
        self.alternate(program.name, &ours, revm.as_ref(), &ran)
            .map(Ok)
    }

    /// The selected attacks.
    fn attacks(&self, fork: Fork) -> Result<Vec<Measure<'_>>> {
        ensure!(
            self.gas > 2 * worst::MARGIN,
            "--gas {} is too little for --worst; give more than {}",
            self.gas,
            2 * worst::MARGIN
        );
        let all = worst::attacks(fork);
        let is_named = |attack: &Attack, name: &String| attack.name.eq_ignore_ascii_case(name);
        for name in &self.only {
            ensure!(
                all.iter().any(|attack| is_named(attack, name)),
                "--only {name} is no attack of {}; give some of {}",
                self.fork,
                all.iter()
                    .map(|attack| attack.name)
                    .collect::<Vec<_>>()
                    .join(", ")
            );
        }
        let selected = all.into_iter().filter(|attack| {
            self.only.is_empty() || self.only.iter().any(|name| is_named(attack, name))
        });
        let measure =
            |attack: Attack| -> Measure<'_> { Box::new(move || self.attack(fork, &attack)) };
        Ok(selected.map(measure).collect())
    }

    fn attack(&self, fork: Fork, attack: &Attack) -> Result<Result<Case, String>> {
        let (ours, revm) = self.machines(fork, &attack.contracts, attack.code.clone());
        let times = match ours.times(self.gas, attack.start) {
            Ok(times) => times,
            Err(error) => return Ok(Err(format!("{}: {error}", attack.name))),
        };
        let ran = |_| times as f64;
        self.alternate(attack.name.to_owned(), &ours, revm.as_ref(), &ran)
            .map(Ok)
    }

    /// Runs a program in batches that alternate with revm's; `ran` gives the number of units for its gas.
    fn alternate(
        &self,
        name: String,
        ours: &Ours,
        revm: Option<&Revm>,
        ran: &dyn Fn(u64) -> f64,
    ) -> Result<Case> {
        let failed = || format!("the program of {name}");
        let (_, gas) = ours.run(self.gas).wrap_err_with(failed)?;
        let mut times = Vec::new();
        for _ in 0..self.batches {
            let (took, _) = ours.run(self.gas).wrap_err_with(failed)?;
            let peer = revm.map(|revm| revm.run(self.gas)).transpose();
            let peer = peer.wrap_err_with(failed)?;
            if let Some((_, revm_gas)) = peer {
                ensure!(
                    revm_gas == gas,
                    "{name}: {gas} gas here, {revm_gas} on revm"
                );
            }
            times.push((took, peer.map(|(took, _)| took)));
        }
        Ok(Case::new(name, gas, ran(gas), &times))
    }

    fn machines(
        &self,
        fork: Fork,
        contracts: &[(Address, Bytes)],
        code: Bytes,
    ) -> (Ours, Option<Revm>) {
        let ours = Ours::new(contracts, code.clone(), fork, self.dispatch);
        let revm = self.revm.then(|| Revm::new(contracts, code, fork));
        (ours, revm.flatten())
    }
}
