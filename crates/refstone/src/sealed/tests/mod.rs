//! History files from outside: what is written is read, whole or not at all.

mod damage;
mod golden;
mod measure;
mod merging;
mod reading;
mod round_trip;
mod size;
mod support;
