//! The `scripted` model: it plays what a script says, so that everything can be tried offline and tested to the byte. It has no intelligence, calls no network and keeps no memory: the request alone decides what it says.
//!
//! The script format is described in [`script`]; the names are those of [`ScriptedRegistry`].

mod choose;
mod echo;
mod estimate;
mod parse;
mod play;
mod registry;
mod review;
pub mod script;
mod summary;

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use tenure_core::{
    context::{ModelRequest, Purpose},
    message::Part,
    model::{Fault, FaultKind, MicroUsd, Usage},
};

pub use parse::{Problem, parse};
pub use registry::{DEFAULT_NAME, DEMO_NAME, SCRIPT_BYTES_MAX, ScriptedRegistry};
pub use script::Script;

use crate::{Model, ModelEvent, Patience};

/// A model that plays one script.
#[derive(Debug, Clone)]
pub struct ScriptedModel {
    /// How faults name the script: its file or its built-in name.
    label: Arc<str>,
    script: Arc<Script>,
}

impl ScriptedModel {
    pub fn new(label: impl Into<Arc<str>>, script: Script) -> Self {
        Self { label: label.into(), script: Arc::new(script) }
    }

    pub fn script(&self) -> &Script {
        &self.script
    }
}

#[async_trait]
impl Model for ScriptedModel {
    async fn stream(&self, request: ModelRequest) -> Result<BoxStream<'static, Result<ModelEvent, Fault>>, Fault> {
        if request.meta.purpose == Purpose::Summary {
            return Ok(play::stream(play::beats(&summary::reply(&self.script, &request), 0, &request)));
        }
        let index = choose::step_index(&request);
        let choice = match request.meta.purpose {
            Purpose::Review => choose::review(&self.script, &request),
            Purpose::Step | Purpose::Summary => choose::choose(&self.script, index, &request),
        };
        let beats = match choice {
            choose::Choice::Approve => play::beats(&review::approval(), index, &request),
            choose::Choice::Actions(actions) => play::beats(actions, index, &request),
            choose::Choice::Echo => play::beats(&echo::reply(&self.script, &request), index, &request),
            choose::Choice::Nothing => play::beats(&[], index, &request),
            choose::Choice::NoCase { step } => {
                let message = format!("script {}: step {step}: no case fits what was seen", self.label);
                return Err(Fault::new(FaultKind::BadRequest, message));
            }
        };
        // Vendors answer a call they refuse before any stream begins, so an error with nothing before it does the same.
        if let Some(play::Beat::Fail(fault)) = beats.first() {
            return Err(fault.clone());
        }
        Ok(play::stream(beats))
    }

    fn cost(&self, usage: &Usage) -> Option<MicroUsd> {
        self.script.price.cost(usage)
    }

    fn window(&self) -> Option<u64> {
        self.script.window
    }

    fn patience(&self) -> Patience {
        self.script.patience
    }

    fn takes(&self, part: &Part) -> bool {
        matches!(part, Part::Text { .. }) || self.script.takes.iter().any(|kind| kind == part.kind())
    }
}
