//! End to end through the real binary: each test has its own data folder, its own daemon and a free port.

mod ask;
mod background;
mod demo;
mod fuzz;
mod growth;
mod kill;
mod random_kill;
mod reader;
mod rig;
mod secrets;
mod serve;
mod store;
mod tending;
mod usage;
