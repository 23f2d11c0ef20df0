//! A guess at token counts, so that budgets have something to count where a script names no usage. Only text weighs.

use tenure_core::{context::ModelRequest, model::Usage};

use super::script::Action;
use crate::tokens::{of_bytes, text_bytes};

pub(super) fn usage(request: &ModelRequest, reply: &[Action]) -> Usage {
    Usage {
        input_tokens: of_bytes(text_bytes(request)),
        output_tokens: of_bytes(reply.iter().map(action_bytes).sum()),
        ..Usage::default()
    }
}

fn action_bytes(action: &Action) -> usize {
    match action {
        Action::Text { text, .. } | Action::Thinking { text, .. } => text.len(),
        Action::Call { name, arguments, .. } => name.len() + arguments.len(),
        Action::Pause(_)
        | Action::WaitFor(_)
        | Action::KeepAlive
        | Action::Usage(_)
        | Action::StopReason(_)
        | Action::Error(_)
        | Action::Drop
        | Action::Stall => 0,
    }
}
