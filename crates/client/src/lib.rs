//! All that speaks to a daemon from outside: the connection, the stream that mends itself, and how events look in a terminal. It never sees the engine, and is handed what it needs instead of reading the environment.

mod client;
pub mod discover;
mod error;
pub mod print;
pub mod stream;
mod trust;

pub use client::{Archive, Client, Target};
pub use error::{Error, Fault};
pub use stream::{EventStream, Find, Item, Until};
pub use trust::Trust;
