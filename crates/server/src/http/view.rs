//! From the core to the wire: what clients are shown of a session.

use serde::Serialize;
use serde_json::{Map, Value};
use tenure_core::{
    budget,
    ids::SessionId,
    message::{Attachment, MessageRef, Role},
    model,
    session::{Call, CallState, Origin, Session, Turn, TurnStatus},
};
use tenure_engine::{Damage, TurnRecord};
use tenure_store::Row;
use tenure_wire as wire;

pub(crate) fn session(session: &Session, damage: &[Damage]) -> wire::SessionView {
    let (settings, used) = (session.settings.clone(), session.spent());
    let preferences = match settings.preferences {
        Value::Object(preferences) => preferences,
        _ => Map::new(),
    };
    wire::SessionView {
        id: session.id.to_string(),
        created_at: session.created_at.to_string(),
        updated_at: session.updated_at.to_string(),
        status: session.status().into(),
        workspace_path: settings.workspace_path,
        system_prompt: settings.system_prompt,
        last_turn_id: session.last_turn_id.map(|turn| turn.to_string()),
        seq: session.seq,
        title: settings.title,
        role: settings.role,
        mode: settings.mode,
        model: settings.model,
        labels: settings.labels,
        auto_run: settings.auto_run,
        memory: settings.memory,
        preferences,
        output_schema: settings.output_schema,
        policy: value(&session.policy),
        budgets: value(&session.budgets),
        turn: session.turn.as_ref().map(open_turn),
        queue: session.queue.iter().map(|queued| queued.id.to_string()).collect(),
        approvals: session.turn.iter().flat_map(approvals).collect(),
        usage: usage(&used.usage),
        spent: spent(&used),
        cost_micro_usd: used.cost(),
        forked_from: session.forked_from.map(origin),
        damage: damage.iter().map(lacking).collect(),
    }
}

/// What is not there.
pub(crate) fn lacking(damage: &Damage) -> wire::Damage {
    wire::Damage {
        kind: damage.kind().into(),
        from_seq: damage.from_seq(),
        events: damage.events(),
        reason: damage.reason().into(),
        hint: damage.hint().into(),
    }
}

pub(crate) fn origin(origin: Origin) -> wire::Origin {
    wire::Origin { session_id: origin.session_id.to_string(), seq: origin.seq }
}

pub(crate) fn row(row: Row, turn: Option<TurnStatus>) -> wire::SessionRow {
    wire::SessionRow {
        id: row.id.to_string(),
        created_at: row.created_at.to_string(),
        updated_at: row.updated_at.to_string(),
        status: row.status.as_ref().into(),
        turn_status: turn.map(|status| word(&status)),
        workspace_path: row.workspace_path.as_ref().into(),
        title: row.title.map(Into::into),
        last_turn_id: row.last_turn_id.map(|turn| turn.to_string()),
        role: row.role.map(|role| role.as_ref().into()),
        labels: row.labels.iter().map(|label| label.as_ref().into()).collect(),
    }
}

pub(crate) fn role(role: Role) -> wire::Role {
    match role {
        Role::System => wire::Role::System,
        Role::User => wire::Role::User,
        Role::Assistant => wire::Role::Assistant,
        Role::Tool => wire::Role::Tool,
    }
}

pub(crate) fn attachment(attachment: &Attachment) -> wire::AttachmentView {
    let Attachment { r#ref, mime_type, bytes, digest } = attachment.clone();
    wire::AttachmentView { r#ref, mime_type, bytes, digest }
}

pub(crate) fn turn(session: SessionId, record: TurnRecord) -> wire::TurnView {
    wire::TurnView {
        id: record.id.to_string(),
        session_id: session.to_string(),
        seq: record.seq,
        status: word(&record.status),
        created_at: record.created_at.to_string(),
        updated_at: record.updated_at.to_string(),
        messages: record.messages.iter().map(message).collect(),
        retry_of: record.retry_of.map(|turn| turn.to_string()),
        model: record.model,
        response: record
            .response
            .map(|answer| wire::Answer { message_id: answer.message_id.to_string(), text: answer.text }),
        error: record.error.map(|error| wire::TurnError { code: error.code, message: error.message }),
        verification: record.verification.map(|verification| word(&verification)),
        spent: spent(&record.spent),
        cost_micro_usd: record.cost_micro_usd,
        left: record.left,
    }
}

fn open_turn(turn: &Turn) -> wire::OpenTurn {
    wire::OpenTurn {
        id: turn.id.to_string(),
        status: word(&turn.status()),
        step: turn.step,
        started_at: turn.started_at.to_string(),
        model: turn.model.clone(),
        retry_of: turn.retry_of.map(|turn| turn.to_string()),
        messages: turn.messages.iter().map(message).collect(),
        unknown_calls: turn.calls.iter().filter(|call| call.state == CallState::Unknown).map(tool_call).collect(),
        spent: spent(&turn.spent),
        cost_micro_usd: turn.spent.cost(),
    }
}

fn tool_call(Call { call, .. }: &Call) -> wire::ToolCall {
    wire::ToolCall { id: call.id.to_string(), name: call.name.clone(), input: call.input.clone() }
}

fn message(message: &MessageRef) -> wire::MessageRef {
    wire::MessageRef { id: message.id.to_string(), seq: message.seq }
}

/// The calls of a turn that wait for a yes or no.
fn approvals(turn: &Turn) -> impl Iterator<Item = wire::Approval> {
    turn.calls.iter().filter_map(|Call { call, origin, state, .. }| match state {
        CallState::Waiting { expires_at } => Some(wire::Approval {
            turn_id: turn.id.to_string(),
            tool_call_id: call.id.to_string(),
            name: call.name.clone(),
            kind: word(&call.kind),
            input: call.input.clone(),
            subject: call.subject.clone(),
            origin: word(origin),
            expires_at: expires_at.map(|at| at.to_string()),
        }),
        CallState::Asked
        | CallState::Reviewing { .. }
        | CallState::Cleared
        | CallState::Started { .. }
        | CallState::Unknown
        | CallState::Done { .. } => None,
    })
}

fn usage(usage: &model::Usage) -> wire::Usage {
    wire::Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cache_read_tokens: usage.cache_read_tokens,
        cache_write_tokens: usage.cache_write_tokens,
    }
}

pub(crate) fn spent(spent: &budget::Spent) -> wire::Spent {
    wire::Spent {
        steps: spent.steps,
        tool_calls: spent.tool_calls,
        active_ms: spent.active_ms,
        usage: usage(&spent.usage),
        micro_usd: spent.micro_usd,
        unpriced: spent.unpriced,
    }
}

/// The wire's word for one of the core's enums.
pub(crate) fn word(of: &impl Serialize) -> String {
    match value(of) {
        Value::String(word) => word,
        other => other.to_string(),
    }
}

/// Plain data with text keys can always be written as JSON.
fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}
