//! Values for the examples: written by the same types that requests and answers are.

use serde_json::{Value, json};
use tenure_core::{
    budget::Budgets,
    ids::{CallId, MessageId, SessionId, TurnId},
    policy::Policy,
    time::{Moment, Timestamp},
};
use tenure_wire as wire;

pub(super) const AT_MS: u64 = 1_767_261_600_120;

fn moment() -> Moment {
    Moment::new(Timestamp::from_ms(AT_MS), 0x1234_5678_9ABC_DEF0_1234 << 16)
}

pub(super) fn session() -> SessionId {
    moment().session_id()
}

pub(super) fn turn() -> TurnId {
    moment().turn_id()
}

pub(super) fn call() -> CallId {
    moment().call_id()
}

pub(super) fn message() -> MessageId {
    moment().message_id()
}

fn at() -> String {
    Timestamp::from_ms(AT_MS).to_string()
}

pub(super) fn create() -> wire::CreateSession {
    wire::CreateSession {
        workspace_path: "/tmp".into(),
        title: Some("Mend the flaky test".into()),
        model: Some("scripted:demo".into()),
        labels: Some(vec!["ci".into()]),
        budgets: Some(wire::Budgets { max_steps: Some(Some(50)), max_micro_usd: Some(None), ..Default::default() }),
        policy: Some(wire::Policy {
            approval: Some(wire::ApprovalPolicy {
                rules: Some(vec![wire::Rule {
                    tool: "shell".into(),
                    pattern: Some("git status*".into()),
                    exact: None,
                    action: wire::RuleAction::Allow,
                }]),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(super) fn text(text: &str) -> wire::SendMessage {
    wire::SendMessage { parts: vec![wire::Part::text(text)], ..Default::default() }
}

pub(super) fn approve() -> wire::Approve {
    wire::Approve {
        tool_call_id: call().to_string(),
        action: wire::Verdict::Approve,
        scope: Some(wire::Scope::Session),
        ..Default::default()
    }
}

pub(super) fn row() -> wire::SessionRow {
    wire::SessionRow {
        id: session().to_string(),
        created_at: at(),
        updated_at: at(),
        status: "active".into(),
        turn_status: Some("running".into()),
        workspace_path: "/tmp".into(),
        title: Some("Mend the flaky test".into()),
        last_turn_id: Some(turn().to_string()),
        role: None,
        labels: vec!["ci".into()],
    }
}

fn value(of: &impl serde::Serialize) -> Value {
    serde_json::to_value(of).expect("plain data")
}

pub(super) fn spent() -> wire::Spent {
    let usage = wire::Usage { input_tokens: 812, output_tokens: 96, ..Default::default() };
    wire::Spent { steps: 2, tool_calls: 1, active_ms: 1840, usage, ..Default::default() }
}

fn messages() -> Vec<wire::MessageRef> {
    vec![wire::MessageRef { id: message().to_string(), seq: 2 }]
}

pub(super) fn view() -> wire::SessionView {
    wire::SessionView {
        id: session().to_string(),
        created_at: at(),
        updated_at: at(),
        status: "waiting_approval".into(),
        workspace_path: "/tmp".into(),
        system_prompt: None,
        last_turn_id: Some(turn().to_string()),
        seq: 7,
        title: Some("Mend the flaky test".into()),
        role: None,
        mode: None,
        model: "scripted:demo".into(),
        labels: vec!["ci".into()],
        auto_run: true,
        memory: None,
        preferences: Default::default(),
        output_schema: None,
        policy: value(&Policy::default()),
        budgets: value(&Budgets::default()),
        turn: Some(wire::OpenTurn {
            id: turn().to_string(),
            status: "waiting_approval".into(),
            step: 1,
            started_at: at(),
            model: "scripted:demo".into(),
            retry_of: None,
            messages: messages(),
            unknown_calls: vec![],
            spent: spent(),
            cost_micro_usd: Some(0),
        }),
        queue: vec![],
        approvals: vec![wire::Approval {
            turn_id: turn().to_string(),
            tool_call_id: call().to_string(),
            name: "shell".into(),
            kind: "exec".into(),
            input: json!({ "command": "make test" }),
            subject: "make test".into(),
            origin: "model".into(),
            expires_at: None,
        }],
        usage: spent().usage,
        spent: spent(),
        cost_micro_usd: Some(0),
        forked_from: None,
        damage: vec![],
    }
}

pub(super) fn turn_view() -> wire::TurnView {
    wire::TurnView {
        id: turn().to_string(),
        session_id: session().to_string(),
        seq: 9,
        status: "completed".into(),
        created_at: at(),
        updated_at: at(),
        messages: messages(),
        retry_of: None,
        model: Some("scripted:demo".into()),
        response: Some(wire::Answer { message_id: message().to_string(), text: "The test passes now.".into() }),
        error: None,
        verification: Some("passed".into()),
        spent: spent(),
        cost_micro_usd: Some(0),
        left: vec![],
    }
}

pub(super) fn answer() -> wire::Message {
    wire::Message {
        id: message().to_string(),
        seq: 5,
        turn_id: Some(turn().to_string()),
        role: wire::Role::Assistant,
        parts: vec![wire::Part::text("I look at the test first.")],
        created_at: at(),
        model: Some("scripted:demo".into()),
        tool_calls: vec![wire::ToolCall {
            id: call().to_string(),
            name: "read_file".into(),
            input: json!({ "path": "tests/flaky.rs" }),
        }],
        name: None,
        ok: None,
    }
}

pub(super) fn attachment() -> wire::AttachmentView {
    let bytes = b"line 12: timed out\n";
    let digest = blake3::hash(bytes).to_hex().to_string();
    wire::AttachmentView {
        r#ref: format!("attachments/{}-ci.log", &digest[..16]),
        mime_type: "text/plain".into(),
        bytes: bytes.len() as u64,
        digest,
    }
}

pub(super) fn artifact() -> wire::ArtifactView {
    wire::ArtifactView {
        r#ref: format!("artifacts/{}/{}.txt", turn(), call()),
        bytes: 48_210,
        turn_id: Some(turn().to_string()),
    }
}

pub(super) fn tools() -> wire::ToolList {
    let foreign = wire::ToolView {
        name: "mcp__docs__look_up".into(),
        source: "mcp:docs".into(),
        description: "Looks a word up.".into(),
        kind: "network".into(),
        requires_approval: true,
        input_schema: json!({ "type": "object", "properties": { "word": { "type": "string" } } }),
    };
    let source = wire::ToolSourceView { name: "mcp:docs".into(), state: "listed".into(), problem: None };
    wire::ToolList { tools: vec![tool(), foreign], sources: vec![source], problems: vec![] }
}

fn tool() -> wire::ToolView {
    wire::ToolView {
        name: "read_file".into(),
        source: "built_in".into(),
        description: "Reads a file of the workspace.".into(),
        kind: "read".into(),
        requires_approval: false,
        input_schema: json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] }),
    }
}

pub(super) fn models() -> wire::ModelList {
    let missing = "there is no key for anthropic: set ANTHROPIC_API_KEY for the daemon, or `key` under [providers.anthropic] in config.toml";
    let long =
        wire::LongPriceView { above: 100_000, input: 0.5, output: 2.5, cache_read: Some(0.05), cache_write: None };
    let prices =
        wire::PriceView { input: 0.1, output: 0.5, cache_read: Some(0.01), cache_write: None, long: Some(long) };
    let model = wire::ModelView {
        name: "anthropic/claude-haiku-5-5".into(),
        provider: "anthropic".into(),
        ready: false,
        missing: Some(missing.into()),
        source: "built_in".into(),
        aliases: vec!["small".into()],
        window: Some(1_000_000),
        output_max: Some(128_000),
        prices: Some(prices),
        takes: vec!["image".into(), "file".into()],
        tool_mode: "native".into(),
        thinking: "adaptive".into(),
    };
    let provider = wire::ProviderView {
        name: "anthropic".into(),
        wire: "anthropic".into(),
        base_url: "https://api.anthropic.com".into(),
        local: false,
        ready: false,
        missing: Some(missing.into()),
        fault: None,
        has_key: false,
        key_variable: Some("ANTHROPIC_API_KEY".into()),
    };
    wire::ModelList { default_model: "scripted".into(), models: vec![model], providers: vec![provider] }
}

pub(super) fn problem() -> Value {
    value(super::super::problem::no_such_session("'nobody'").problem())
}
