//! A git server over smart HTTP whose references live in refstone.
//!
//! Objects lie in a bare git repository and are handled by stock git: `index-pack` checks and
//! stores what is pushed, `upload-pack` packs what is fetched. References are served and moved by
//! refstone only. An acknowledged push is on stable storage: objects first, then the frame of the
//! log that names them, then the answer.
//!
//! Modules in reading order: [`wire`] is the protocol, as pure functions. `server` starts and
//! stops, `http` routes. `receive` is a push, with `quarantine` below it; `upload` is a fetch, with
//! `projection` and `checked` below it. `repository` holds what is open; `init` and `create` make new
//! ones, `aside` puts them in place.

pub mod wire;

mod aside;
mod auth;
mod body;
mod create;
mod git;
mod heal;
mod http;
mod init;
mod listing;
mod peel;
mod projection;
mod quarantine;
mod receive;
mod refs;
mod repository;
mod server;
mod settings;
mod stream;
mod text;
mod upload;

pub use aside::Aside;
pub use auth::UserPolicy;
pub use create::CreateOnPush;
pub use init::{InitError, InitOptions, init_repository};
pub use server::{Monitor, Server, ServerError, ServerOptions};
