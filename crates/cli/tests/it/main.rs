//! End to end through the real binary: each test has its own data folder, its own daemon and a free port.

mod access;
mod ask;
mod background;
mod chat;
mod copies;
mod demo;
mod docs;
mod foreign;
mod full_disk;
mod fuzz;
mod growth;
mod kill;
mod listing;
mod models;
mod random_kill;
mod reader;
mod rig;
mod screen;
mod secrets;
mod serve;
mod service;
mod store;
mod tending;
mod usage;
