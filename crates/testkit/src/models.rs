//! Scripted models with a gate in their stream, and one that breaks.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use tenure_core::{
    context::ModelRequest,
    message::Part,
    model::{Fault, MicroUsd, Usage},
};
use tenure_models::{Model, ModelEvent, Patience, Registry, scripted::ScriptedRegistry};

use crate::Gate;

/// The name of a model that panics when it is asked.
pub const PANICKING_MODEL: &str = "panics";

/// The scripted models; each `keep_alive` of a script is a place where the stream waits at `gate`.
#[derive(Default)]
pub struct TestModels {
    pub gate: Arc<Gate>,
    scripted: ScriptedRegistry,
}

impl Registry for TestModels {
    fn resolve(&self, name: &str) -> Result<Arc<dyn Model>, Fault> {
        if name == PANICKING_MODEL {
            return Ok(Arc::new(Panicking));
        }
        let model = self.scripted.resolve(name)?;
        Ok(Arc::new(Gated { model, gate: self.gate.clone() }))
    }
}

struct Gated {
    model: Arc<dyn Model>,
    gate: Arc<Gate>,
}

#[async_trait]
impl Model for Gated {
    async fn stream(&self, request: ModelRequest) -> Result<BoxStream<'static, Result<ModelEvent, Fault>>, Fault> {
        let events = self.model.stream(request).await?;
        let gate = self.gate.clone();
        let held = events.then(move |event| {
            let gate = gate.clone();
            async move {
                if let Ok(ModelEvent::KeepAlive) = event {
                    gate.pass().await;
                }
                event
            }
        });
        Ok(held.boxed())
    }

    fn cost(&self, usage: &Usage) -> Option<MicroUsd> {
        self.model.cost(usage)
    }

    fn patience(&self) -> Patience {
        self.model.patience()
    }

    fn window(&self) -> Option<u64> {
        self.model.window()
    }

    fn takes(&self, part: &Part) -> bool {
        self.model.takes(part)
    }
}

struct Panicking;

#[async_trait]
impl Model for Panicking {
    async fn stream(&self, _request: ModelRequest) -> Result<BoxStream<'static, Result<ModelEvent, Fault>>, Fault> {
        panic!("a model that breaks on purpose");
    }

    fn cost(&self, _usage: &Usage) -> Option<MicroUsd> {
        None
    }

    fn takes(&self, _part: &Part) -> bool {
        false
    }
}
