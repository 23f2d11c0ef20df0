//! What a script says when it is asked for a summary: its own words, or how much there was to summarize.

use tenure_core::context::ModelRequest;

use super::script::{Action, Pace, Script};
use crate::tokens;

pub(super) fn reply(script: &Script, request: &ModelRequest) -> Vec<Action> {
    let text = script.summary.clone().unwrap_or_else(|| {
        let count: u64 = request.messages.iter().map(|message| tokens::of_message(message)).sum();
        format!("About {count} tokens were said before.")
    });
    vec![Action::Text { text, pace: Pace::default() }]
}
