//! The `refstone` command. Each subcommand is a module; `output` prints, `exit` sorts failures into
//! exit codes, `errors` says what those of the store mean, `repo` finds the log and makes it fit to be
//! read, `holder` tells who locks it, `mend` what a lost one is made anew of, `text` makes bytes
//! readable, `moves` shows moves, `at` and `span` read points in time, `meter` tells how far something
//! is, and `interrupt` stops it.

mod at;
mod compact;
mod errors;
mod exit;
mod export;
mod export_history;
mod holder;
mod import;
mod init;
mod interrupt;
mod log;
mod mend;
mod meter;
mod moves;
mod objects;
mod output;
mod project;
mod rebuild;
mod refs;
mod repair;
mod repo;
mod restore;
mod serve;
mod span;
mod stat;
mod tail;
mod text;
mod update_ref;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::{CODES, Failure};

/// A durable store of git references: every move is one transaction in a log that is synced before
/// it is acknowledged, and that any Arrow reader opens.
///
/// REPO is the path of a `<name>.git` that holds `refstone/` (`.git` may be left out), or of that directory
/// itself. `refs`,
/// `log`, `tail`, `objects`, `stat`, `verify`, `export` and `project` work beside a running `serve`, and
/// show what is durable. `stat` and `verify` never change anything; the others first finish what a crash
/// left, if nobody holds the lock. `update-ref`, `restore`, `compact`, `rebuild` and `repair` hold the
/// lock.
/// Where references are counted, symbolic ones are and HEAD is not.
///
/// With `--json` each line of standard output is one JSON object, and fields are only ever added.
///
/// A transaction that is named by its sequence and is not there yet is refused, and the newest one is
/// told. Only `--from` may be the next to come, which is how a log is taken piece by piece, and `tail
/// --follow` waits.
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
    Tail(tail::Tail),
    Stat(stat::Stat),
    Verify(verify::Verify),
    Import(import::Import),
    Export(export::Export),
    Project(project::Project),
    Repair(repair::Repair),
    UpdateRef(update_ref::UpdateRef),
    Restore(restore::Restore),
    Compact(compact::Compact),
    Rebuild(rebuild::Rebuild),
    Objects(objects::Objects),
}

fn main() -> ExitCode {
    let arguments = log::expand_count(std::env::args_os());
    match run(Arguments::parse_from(arguments).command) {
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
        Command::Tail(tail) => tail.run(),
        Command::Stat(stat) => stat.run(),
        Command::Verify(verify) => verify.run(),
        Command::Import(import) => import.run(),
        Command::Export(export) => export.run(),
        Command::Project(project) => project.run(),
        Command::Repair(repair) => repair.run(),
        Command::UpdateRef(update_ref) => update_ref.run(),
        Command::Restore(restore) => restore.run(),
        Command::Compact(compact) => compact.run(),
        Command::Rebuild(rebuild) => rebuild.run(),
        Command::Objects(objects) => objects.run(),
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
