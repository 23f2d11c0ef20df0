//! Clocks, tools, models, stores and rigs for tests of the engine and of what stands on it. Never part of the product.

mod clock;
mod gate;
mod models;
mod rig;
mod sound;
mod store;
mod tool;
pub mod vendor;
mod watcher;
mod weather;

pub use clock::TestClock;
pub use gate::Gate;
pub use models::{PANICKING_MODEL, TestModels};
pub use rig::{Rig, RigSetup, as_json, as_text, message, trusting, user, within};
pub use sound::assert_sound;
pub use store::UnwillingStore;
pub use tool::TestTool;
pub use watcher::{Recorder, Watcher};
pub use weather::{Weather, WeatherStore, Witness};
