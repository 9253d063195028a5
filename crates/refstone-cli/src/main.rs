//! The `refstone` command. Each subcommand is a module; `output` prints, `exit` sorts failures into
//! exit codes, `repo` finds the log and makes it fit to be read, `text` makes bytes readable,
//! `meter` tells how far something is, and `interrupt` stops it.

mod exit;
mod export;
mod export_history;
mod import;
mod init;
mod interrupt;
mod log;
mod meter;
mod output;
mod project;
mod refs;
mod repair;
mod repo;
mod serve;
mod text;
mod update_ref;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::{CODES, Failure};

/// A durable store of git references: every move is one transaction in a log that is synced before
/// it is acknowledged, and that any Arrow reader opens.
///
/// REPO is the path of a `<name>.git` that holds `refstone/`, or of that directory itself. `refs`,
/// `log` and `verify` work beside a running `serve`, and show what is durable. `verify` never changes
/// anything; `refs` and `log` first finish what a crash left, if nobody holds the lock.
/// With `--json` each line of standard output is one JSON object, and fields are only ever added.
#[derive(Debug, Parser)]
#[command(name = "refstone", version, after_help = CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Init),
    Serve(serve::Serve),
    Refs(refs::Refs),
    Log(log::Log),
    Verify(verify::Verify),
    Import(import::Import),
    Export(export::Export),
    Project(project::Project),
    Repair(repair::Repair),
    UpdateRef(update_ref::UpdateRef),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Init(init) => init.run(),
        Command::Serve(serve) => serve.run(),
        Command::Refs(refs) => refs.run(),
        Command::Log(log) => log.run(),
        Command::Verify(verify) => verify.run(),
        Command::Import(import) => import.run(),
        Command::Export(export) => export.run(),
        Command::Project(project) => project.run(),
        Command::Repair(repair) => repair.run(),
        Command::UpdateRef(update_ref) => update_ref.run(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_documents_its_exit_codes() {
        for command in Arguments::command().get_subcommands() {
            let help = command.get_after_long_help().map(ToString::to_string);
            assert_eq!(help.as_deref(), Some(CODES), "{}", command.get_name());
        }
    }
}
