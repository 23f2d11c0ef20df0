//! Speaks to models and turns their streams into our deltas and step results. It never retries: that is a decision of the core.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{future::BoxFuture, stream::BoxStream};
use tenure_core::{
    context::{ChatMessage, ModelRequest},
    message::Part,
    model::{Fault, MicroUsd, StopReason, Usage},
};

pub mod catalog;
pub mod entry;
pub mod probe;
pub mod scripted;
pub mod tokens;
pub mod vendor;

/// A fragment of a reply under way.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The vendor is alive; nothing to show.
    KeepAlive,
    Text(String),
    Thinking(String),
    /// The thinking block under way is over; vendors may want its signature back.
    ThinkingDone {
        signature: Option<String>,
        /// The format that made the signature, and what it belongs to there.
        origin: Option<String>,
    },
    /// Call number `index` of this reply begins.
    CallStarted {
        index: u32,
        provider_id: Option<String>,
        name: String,
    },
    /// A fragment of that call's JSON arguments.
    CallArguments {
        index: u32,
        text: String,
    },
    /// Totals so far of this reply; a later one replaces an earlier one.
    Usage(Usage),
    /// The reply's closing mark. A stream that ends without it was cut.
    Done {
        stop_reason: StopReason,
    },
}

/// A streaming model. Dropping the stream cancels the call.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    async fn stream(&self, request: ModelRequest) -> Result<BoxStream<'static, Result<ModelEvent, Fault>>, Fault>;

    /// What a reply with this usage costs, or `None` where the price is not known.
    fn cost(&self, usage: &Usage) -> Option<MicroUsd>;

    /// How long silence is taken for life.
    fn patience(&self) -> Patience {
        Patience::default()
    }

    /// Tokens that a request and its reply may have together, where that is known.
    fn window(&self) -> Option<u64> {
        None
    }

    /// Tokens of a request: by the vendor's own vocabulary where that is public and loaded, by its bytes elsewhere.
    fn count(&self, request: &ModelRequest) -> u64 {
        tokens::of_request(request)
    }

    /// The same of one message.
    fn count_message(&self, message: &Arc<ChatMessage>) -> u64 {
        tokens::of_message(message)
    }

    /// What the vendor's own number is to be compared with when the reply is there: the guess that was made, or a count
    /// that came meanwhile. `None` while a part is only guessed that will be counted: a ratio found for guesses would be
    /// wrong for counts.
    fn recount(&self, _request: &ModelRequest, guessed: u64) -> Option<u64> {
        Some(guessed)
    }

    /// Whether it can take such a part of a message. Text can be taken by all.
    fn takes(&self, part: &Part) -> bool;
}

/// The watchdog's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    pub first_byte: Duration,
    pub between_bytes: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { first_byte: Duration::from_secs(300), between_bytes: Duration::from_secs(60) }
    }
}

/// Finds a model by its name.
pub trait Registry: Send + Sync + 'static {
    /// The model, or a fault of kind `UnknownModel` that says which names there are.
    fn resolve(&self, name: &str) -> Result<Arc<dyn Model>, Fault>;

    /// The whole name that a name stands for, or a fault where it can never become a model's. One that only lacks a key is fine: the key may come.
    fn full_name(&self, name: &str) -> Result<String, Fault> {
        Ok(name.to_owned())
    }

    /// All that can be named, and what servers on this machine say they have.
    fn listing(&self) -> BoxFuture<'_, catalog::Listing> {
        Box::pin(async { catalog::Listing::default() })
    }
}
