//! The `refstone` command from outside: what it prints, and how it ends.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

mod command;
mod compact;
mod damage;
mod endings;
mod exchange;
mod git;
mod grammar_as_git;
mod init;
mod interrupts;
mod log;
mod misfits;
mod objects_as_git;
mod refs;
mod repair;
mod restore;
mod server;
mod tail;
mod update_ref;
mod verify;
