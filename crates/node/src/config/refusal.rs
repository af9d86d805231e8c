//! clap's errors, each as one sentence.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The flag that an error is about, without its dashes.
pub(super) fn flag_of(error: &Error) -> Option<String> {
    let Some(ContextValue::String(text)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let name = text.strip_prefix("--")?;
    let end = name.find([' ', '=', '[']).unwrap_or(name.len());
    name.get(..end).map(str::to_owned)
}

/// What is wrong and what to do, without clap's usage summary.
pub(super) fn sentence(error: &Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim);
    let mut sentence = String::new();
    for line in lines.take_while(|line| !line.starts_with("Usage:")) {
        let (mark, line) = match line.strip_prefix("tip: ") {
            Some(tip) => ("; ", tip),
            None => (" ", line),
        };
        if line.is_empty() || line.starts_with("For more information") {
            continue;
        }
        if !sentence.is_empty() {
            sentence.push_str(mark);
        }
        sentence.push_str(line);
    }
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "the command is not whole; the same with --help lists what may follow".to_owned()
        }
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand if !text.contains("tip: ") => {
            format!("{sentence}; `niwaki --help` lists what there is")
        }
        _ => sentence.to_owned(),
    }
}
