//! geth's tracers by name, and running one.

use super::flat::{self, FlatOptions};
use super::prestate::{self, PrestateOptions};
use super::struct_log::{StructLogger, StructOptions};
use super::subject::Subject;
use super::{MAX_RESPONSE_BYTES, call_tracer, check_length, too_large};
use crate::json::{self, Array, Object};
use crate::json_reader;
use crate::params::plain;
use crate::response_stream::ResponseStream;
use crate::simulation::{NoopTracer, SimulatedBlock, SimulationResult};
use crate::{Params, RpcError};
use niwaki_evm::Failure;
use niwaki_evm::tracers::{Call, CallOptions, CallTree};
use niwaki_primitives::Transaction;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const NAMES: &str =
    "4byteTracer, callTracer, flatCallTracer, muxTracer, noopTracer, prestateTracer";

/// A tracer and its options.
#[derive(Clone, Debug)]
pub(super) enum TracerKind {
    Struct(StructOptions),
    Call(CallOptions),
    Flat {
        options: CallOptions,
        parity_errors: bool,
    },
    Prestate(PrestateOptions),
    Selectors,
    NoopTracer,
    Several(Vec<(String, TracerKind)>),
}

/// What a caller says of a trace.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TracerOptions {
    tracer: Option<String>,
    tracer_config: Option<Box<RawValue>>,
    timeout: Option<String>,
}

/// A tracer with its deadline, and the stream for its output.
#[derive(Clone, Debug)]
pub(super) struct Tracing<'p> {
    pub(super) kind: TracerKind,
    bounds: Bounds<'p>,
}

#[derive(Clone, Copy, Debug)]
struct Bounds<'p> {
    deadline: Instant,
    stream: Option<&'p ResponseStream>,
}

impl<'p> Tracing<'p> {
    /// Reads the options that are the parameter `index`.
    ///
    /// # Errors
    /// As [`Tracing::read`].
    pub(super) fn of(params: &Params<'p>, index: usize) -> Result<Self, RpcError> {
        let mut tracing = Self::read(params.raw(index), params.deadline)?;
        tracing.bounds.stream = params.stream;
        Ok(tracing)
    }

    /// Reads the options `raw`.
    ///
    /// # Errors
    /// -32602 for invalid options, -32000 for an unknown tracer.
    pub(super) fn read(raw: Option<&str>, deadline: Instant) -> Result<Self, RpcError> {
        let raw = raw.unwrap_or("{}");
        let requested: TracerOptions = options(raw)?;
        let kind = match &requested.tracer {
            None => TracerKind::Struct(options(raw)?),
            Some(name) => {
                let config = requested.tracer_config.as_deref();
                TracerKind::named(name, config.map_or("{}", RawValue::get))?
            }
        };
        let timeout = requested.timeout.as_deref().map(duration).transpose()?;
        let most = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let deadline = most.map_or(deadline, |most| most.min(deadline));
        let bounds = Bounds {
            deadline,
            stream: None,
        };
        Ok(Self { kind, bounds })
    }

    /// Executes `subject` in `block` and writes the trace.
    pub(super) fn write(
        &self,
        block: &SimulatedBlock<'_>,
        subject: &Subject<'_>,
        out: &mut Vec<u8>,
    ) -> Result<SimulationResult, RpcError> {
        let run = self.kind.write(block, subject, self.bounds, out)?;
        check_length(out)?;
        Ok(run)
    }
}

fn options<'a, T: Deserialize<'a> + Default>(raw: &'a str) -> Result<T, RpcError> {
    let read: Option<T> = json_reader::read(raw).map_err(|error| {
        RpcError::invalid_params(format!("invalid trace options: {}", plain(&error)))
    })?;
    Ok(read.unwrap_or_default())
}

/// A duration such as `10s` or `500ms`.
fn duration(text: &str) -> Result<Duration, RpcError> {
    let refuse = || {
        RpcError::invalid_params(format!(
            "invalid timeout {text:?}: want a number and ms, s, m or h, such as \"10s\""
        ))
    };
    let at = text.find(|c: char| !c.is_ascii_digit());
    let at = at.ok_or_else(refuse)?;
    let number: u64 = text[..at].parse().map_err(|_| refuse())?;
    let unit_ms = match &text[at..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(refuse()),
    };
    Ok(Duration::from_millis(number.saturating_mul(unit_ms)))
}

impl TracerKind {
    fn named(name: &str, config: &str) -> Result<Self, RpcError> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct CallConfig {
            only_top_call: bool,
            with_log: bool,
            convert_parity_errors: bool,
            include_precompiles: bool,
        }
        let calls = |config: &CallConfig| CallOptions {
            only_top: config.only_top_call,
            with_logs: config.with_log,
            without_precompiled: false,
        };
        Ok(match name {
            "callTracer" => Self::Call(calls(&options(config)?)),
            "flatCallTracer" => {
                let config: CallConfig = options(config)?;
                let options = CallOptions {
                    without_precompiled: !config.include_precompiles,
                    ..CallOptions::default()
                };
                Self::Flat {
                    options,
                    parity_errors: config.convert_parity_errors,
                }
            }
            "prestateTracer" => Self::Prestate(options::<PrestateOptions>(config)?.check()?),
            "4byteTracer" => Self::Selectors,
            "noopTracer" => Self::NoopTracer,
            "muxTracer" => {
                let inner: BTreeMap<String, Box<RawValue>> = options(config)?;
                let inner = inner.into_iter().map(|(name, config)| {
                    if name == "muxTracer" {
                        let message = "a muxTracer holds no other muxTracer";
                        return Err(RpcError::server(message));
                    }
                    let config = match config.get() {
                        "null" => "{}",
                        config => config,
                    };
                    Ok((name.clone(), Self::named(&name, config)?))
                });
                Self::Several(inner.collect::<Result<_, _>>()?)
            }
            other => {
                let other: String = other.chars().take(100).collect();
                return Err(RpcError::server(format!(
                    "tracer {other:?} is not known: this node has {NAMES}, and the struct logger \
                     where no tracer is named; JavaScript is not run"
                )));
            }
        })
    }

    fn write(
        &self,
        block: &SimulatedBlock<'_>,
        subject: &Subject<'_>,
        bounds: Bounds<'_>,
        out: &mut Vec<u8>,
    ) -> Result<SimulationResult, RpcError> {
        let deadline = bounds.deadline;
        match self {
            Self::Struct(options) => write_struct(*options, block, subject, bounds, out),
            Self::Call(options) => {
                let (root, run) = calls(*options, block, subject, deadline)?;
                call_tracer::write(out, &with_tx_gas(root, subject, &run), false);
                Ok(run)
            }
            Self::Flat {
                options,
                parity_errors,
            } => {
                let (root, run) = calls(*options, block, subject, deadline)?;
                let options = FlatOptions {
                    parity_errors: *parity_errors,
                    location: subject.location(),
                };
                let root = with_tx_gas(root, subject, &run);
                let mut list = Array::new(out);
                root.each(|call, at| flat::write(list.item(), call, at, &options));
                Ok(run)
            }
            Self::Prestate(options) => {
                let tx = subject.transaction(block)?;
                let (sender, nonce) = (subject.sender(), tx.nonce());
                let coinbase = block.header.beneficiary;
                let state = block.state();
                let mut touched = prestate::touched_by(&tx, sender, nonce, coinbase, state)?;
                let run = subject.run(block, &mut touched, deadline)?;
                prestate::write(out, touched, state, &run.diff, options)?;
                Ok(run)
            }
            Self::Selectors => {
                let (root, run) = calls(CallOptions::default(), block, subject, deadline)?;
                call_tracer::write_selectors(out, &root);
                Ok(run)
            }
            Self::NoopTracer => {
                out.extend_from_slice(b"{}");
                subject.run(block, &mut NoopTracer, deadline)
            }
            Self::Several(kinds) => write_several(kinds, block, subject, bounds, out),
        }
    }
}

/// Executes `subject` once per tracer, with the same result each time.
fn write_several(
    kinds: &[(String, TracerKind)],
    block: &SimulatedBlock<'_>,
    subject: &Subject<'_>,
    bounds: Bounds<'_>,
    out: &mut Vec<u8>,
) -> Result<SimulationResult, RpcError> {
    let mut last = None;
    let mut object = Object::new(out);
    for (name, kind) in kinds {
        last = Some(kind.write(block, subject, bounds, object.field(name))?);
    }
    match last {
        Some(run) => Ok(run),
        None => subject.run(block, &mut NoopTracer, bounds.deadline),
    }
}

/// Executes `subject` and returns its call tree.
pub(super) fn calls(
    options: CallOptions,
    block: &SimulatedBlock<'_>,
    subject: &Subject<'_>,
    deadline: Instant,
) -> Result<(Call, SimulationResult), RpcError> {
    let mut tree = CallTree::new(options).after_logs(block.logs);
    let run = subject.run(block, &mut tree, deadline)?;
    if tree.is_too_large() {
        return Err(too_large());
    }
    let root = tree.into_root();
    let root = root.ok_or_else(|| RpcError::internal("a run without a call"))?;
    Ok((root, run))
}

/// Sets the gas of the root call to that of the whole transaction, as geth does.
fn with_tx_gas(mut root: Call, subject: &Subject<'_>, run: &SimulationResult) -> Call {
    root.gas = subject.gas_limit();
    root.gas_used = run.result.gas_used;
    root
}

fn write_struct(
    options: StructOptions,
    block: &SimulatedBlock<'_>,
    subject: &Subject<'_>,
    bounds: Bounds<'_>,
    out: &mut Vec<u8>,
) -> Result<SimulationResult, RpcError> {
    out.extend_from_slice(b"{\"structLogs\":");
    let bytes_left = MAX_RESPONSE_BYTES.saturating_sub(out.len());
    let stream = bounds.stream.map(|stream| (stream, bounds.deadline));
    let mut logger = StructLogger::new(out, options, bytes_left, stream);
    let run = subject.run(block, &mut logger, bounds.deadline)?;
    if let Some(error) = logger.into_error() {
        return Err(error);
    }
    out.extend_from_slice(format!(",\"gas\":{}", run.result.gas_used).as_bytes());
    let failed = run.failure.is_some();
    out.extend_from_slice(format!(",\"failed\":{failed},\"returnValue\":").as_bytes());
    match run.failure {
        None | Some(Failure::Revert) => json::data(out, &run.result.output),
        Some(_) => json::data(out, &[]),
    }
    out.push(b'}');
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracers_and_options_have_geths_names() {
        let read = |raw| Tracing::read(Some(raw), Instant::now()).map(|tracing| tracing.kind);
        assert!(matches!(read("{}"), Ok(TracerKind::Struct(_))));
        assert!(matches!(read("null"), Ok(TracerKind::Struct(_))));
        let raw = "{\"tracer\":\"callTracer\",\"tracerConfig\":{\"onlyTopCall\":true}}";
        assert!(matches!(read(raw), Ok(TracerKind::Call(options)) if options.only_top));
        let raw = "{\"tracer\":\"muxTracer\",\"tracerConfig\":{\"noopTracer\":null}}";
        assert!(matches!(read(raw), Ok(TracerKind::Several(inner)) if inner.len() == 1));
    }

    #[test]
    fn unknown_tracers_and_bad_options_are_refused_with_a_reason() {
        for (raw, word) in [
            ("{\"tracer\":\"function() {}\"}", "JavaScript is not run"),
            ("{\"enableMemory\":7}", "invalid trace options"),
            ("{\"timeout\":\"soon\"}", "such as \\\"10s\\\""),
            (
                "{\"tracer\":\"muxTracer\",\"tracerConfig\":{\"muxTracer\":{}}}",
                "no other",
            ),
        ] {
            let error = Tracing::read(Some(raw), Instant::now()).unwrap_err();
            assert!(
                error.message.contains(&word.replace('\\', "")),
                "{raw}: {error}"
            );
        }
    }

    #[test]
    fn a_timeout_can_only_shorten_the_deadline() {
        let deadline = Instant::now() + Duration::from_secs(30);
        let read = |raw| Tracing::read(Some(raw), deadline).unwrap().bounds.deadline;
        assert!(read("{\"timeout\":\"500ms\"}") < deadline);
        assert_eq!(read("{\"timeout\":\"2h\"}"), deadline);
    }
}
