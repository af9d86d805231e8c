//! `niwaki completions`, `niwaki man` and `niwaki --Xhelp`.

use crate::Outcome;
use crate::options::{CompletionOptions, ManOptions, Options};
use clap::{Command, CommandFactory};
use eyre::{Result, WrapErr};
use std::io::Write;

/// Prints the completion script of a shell.
pub(crate) fn completions(options: &CompletionOptions) -> Result<Outcome> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut Options::command(), "niwaki", &mut text);
    print(&text)
}

/// Prints the manual page, or writes one page per command into a folder.
pub(crate) fn man(options: &ManOptions) -> Result<Outcome> {
    let command = Options::command();
    let Some(folder) = &options.to else {
        let mut text = Vec::new();
        clap_mangen::Man::new(command).render(&mut text)?;
        return print(&text);
    };
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .wrap_err_with(|| format!("can't write the manual into {}", folder.display()))?;
    Ok(Outcome::Done)
}

/// Prints the flags of the node that begin with X: Besu's unstable ones, as far as they do something here.
pub(crate) fn unstable_help(command: Command) -> Result<Outcome> {
    let mut flags: Vec<_> = command.get_arguments().collect();
    flags.retain(|flag| {
        flag.get_long()
            .is_some_and(|name| name.starts_with('X') && name != "Xhelp")
    });
    flags.sort_by_key(|flag| flag.get_long());
    let mut text = String::from("Flags that may change or go at any time:\n");
    for flag in flags {
        let (name, help) = (flag.get_long().unwrap_or_default(), flag.get_help());
        let values = flag.get_value_names().unwrap_or_default();
        let values: Vec<String> = values.iter().map(|value| format!("=<{value}>")).collect();
        let help = help.map(ToString::to_string).unwrap_or_default();
        text += &format!("      --{name}{}\n          {help}\n", values.concat());
    }
    print(text.as_bytes())
}

fn print(text: &[u8]) -> Result<Outcome> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        // The reader, such as `head`, has closed the pipe.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Outcome::Done),
        written => {
            written.wrap_err("can't write to standard output")?;
            Ok(Outcome::Done)
        }
    }
}
