//! `niwaki completions` and `niwaki man`.

use crate::Outcome;
use crate::options::{CompletionOptions, ManOptions, Options};
use clap::CommandFactory;
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
