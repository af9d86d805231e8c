//! What shells and `man` are told of the command line.

use crate::Ending;
use crate::options::{CompletionOptions, ManOptions, Options};
use clap::CommandFactory;
use eyre::{Result, WrapErr};
use std::io::Write;

/// Prints what a shell completes words with.
pub(crate) fn completions(options: &CompletionOptions) -> Result<Ending> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut Options::command(), "niwaki", &mut text);
    print(&text)
}

/// Prints the manual's page, or writes a page for each command into a folder.
pub(crate) fn man(options: &ManOptions) -> Result<Ending> {
    let command = Options::command();
    let Some(folder) = &options.to else {
        let mut text = Vec::new();
        clap_mangen::Man::new(command).render(&mut text)?;
        return print(&text);
    };
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .wrap_err_with(|| format!("can't write the manual into {}", folder.display()))?;
    Ok(Ending::Done)
}

fn print(text: &[u8]) -> Result<Ending> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Ending::Done),
        written => {
            written.wrap_err("can't write to standard output")?;
            Ok(Ending::Done)
        }
    }
}
