//! A reply that nobody is shown while it comes, such as a summary or a review: its text as a whole. It never retries.

use std::sync::Arc;

use futures::StreamExt;
use tenure_core::{
    context::ModelRequest,
    model::{Fault, FaultKind, StopReason},
};
use tenure_models::{Model, ModelEvent};
use tokio::time::Instant;

use crate::model_call::{Bill, within};

/// The text of a reply, and why it ended; a longer one than the bound is a fault.
pub(crate) async fn reply(
    model: &Arc<dyn Model>,
    request: ModelRequest,
    bill: &Bill,
    bytes_max: usize,
) -> Result<(String, StopReason), Fault> {
    let patience = model.patience();
    let begun = Instant::now();
    let mut stream = within(patience.first_byte, model.stream(request)).await??;
    let mut text = String::new();
    let mut limit = patience.first_byte.saturating_sub(begun.elapsed());
    loop {
        let Some(event) = within(limit, stream.next()).await? else {
            return Err(Fault::new(FaultKind::StreamCut, "the stream ended without its closing mark"));
        };
        limit = patience.between_bytes;
        let event = event?;
        bill.note(&event);
        match event {
            ModelEvent::Text(more) => text.push_str(&more),
            ModelEvent::Done { stop_reason } => return Ok((text, stop_reason)),
            ModelEvent::KeepAlive
            | ModelEvent::Usage(_)
            | ModelEvent::Thinking(_)
            | ModelEvent::ThinkingDone { .. }
            | ModelEvent::CallStarted { .. }
            | ModelEvent::CallArguments { .. } => {}
        }
        if text.len() > bytes_max {
            let why = format!("the reply is longer than {bytes_max} bytes");
            return Err(Fault::new(FaultKind::ReplyTooLarge, why));
        }
    }
}
