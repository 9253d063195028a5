//! The real git client, and hand-made requests, against a server in this process.

#![allow(
    clippy::unwrap_used,
    reason = "what tests share fails the test, like the tests themselves"
)]

mod fetch;
mod heal;
mod http;
mod logs;
mod push;
mod refusals;
mod repositories;
mod shallow;
mod support;
