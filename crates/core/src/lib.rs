//! What a session, turn and call are and what happens next. Pure: no clock, disk, network, async or chance.

pub mod budget;
pub mod bundle;
pub mod command;
pub mod context;
pub mod cursor;
pub mod delta;
pub mod event;
pub mod ids;
pub mod message;
pub mod model;
pub mod policy;
pub mod redact;
pub mod session;
pub mod time;
pub mod tool;
