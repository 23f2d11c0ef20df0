//! A guess at token counts, four bytes to the token, so that budgets have something to count where a script names no usage.

use tenure_core::{
    context::{ChatMessage, ModelRequest},
    message::Part,
    model::Usage,
};

use super::script::Action;

const BYTES_PER_TOKEN: u64 = 4;

pub(super) fn usage(request: &ModelRequest, reply: &[Action]) -> Usage {
    Usage {
        input_tokens: tokens(request_bytes(request)),
        output_tokens: tokens(reply.iter().map(action_bytes).sum()),
        ..Usage::default()
    }
}

fn tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

fn request_bytes(request: &ModelRequest) -> usize {
    let system: usize = request.system.iter().map(|text| text.len()).sum();
    let messages: usize = request.messages.iter().map(|message| message_bytes(message)).sum();
    let tools = request.tools.iter();
    let tools: usize =
        tools.map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.to_string().len()).sum();
    system + messages + tools
}

fn message_bytes(message: &ChatMessage) -> usize {
    match message {
        ChatMessage::System { parts } | ChatMessage::User { parts } | ChatMessage::Tool { parts, .. } => {
            parts.iter().map(part_bytes).sum()
        }
        ChatMessage::Assistant { text, thinking, calls } => {
            let thinking: usize = thinking.iter().map(|block| block.text.len()).sum();
            let calls: usize = calls.iter().map(|call| call.name.len() + call.input.to_string().len()).sum();
            text.len() + thinking + calls
        }
    }
}

/// Only text weighs: the bytes behind a reference are not in the request.
fn part_bytes(part: &Part) -> usize {
    match part {
        Part::Text { text } => text.len(),
        Part::Image { .. } | Part::Audio { .. } | Part::File { .. } => 0,
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
