//! Golden logs: frozen files of every released format load forever, and what is written today is byte for byte the same.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tenure_core::{
    budget::{Breach, BudgetKind, Spent},
    command::{Answer, KeyUse, Verdict},
    event::*,
    message::{Attachment, Delivery, MessageRef, Part, Role},
    model::{Fault, FaultKind, StopReason, Thinking, Usage},
    policy::Scope,
    session::Settings,
    time::{Moment, Timestamp},
    tool::{
        Artifact, CallClass, FileChange, Intent, OfferedTool, Outcome, Proposed, Runner, ToolCall, ToolKind,
        ToolResult, ToolSpec, VerifyPlan, VerifySource,
    },
};
use tenure_store::Store;

use crate::sample::*;

/// Set to write the golden log anew after a deliberate change of the events.
const BLESS: &str = "TENURE_BLESS";

/// A frozen log. Later types get a log of their own, so that those that are there are never touched.
struct Golden {
    name: &'static str,
    bodies: fn(&mut Moment) -> Vec<Body>,
}

const LOGS: [Golden; 4] = [
    Golden { name: "events.ndjson", bodies: first_bodies },
    Golden { name: "undo.ndjson", bodies: of_undo },
    Golden { name: "review.ndjson", bodies: of_review },
    Golden { name: "offers.ndjson", bodies: of_offers },
];

impl Golden {
    fn path(&self) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v1")).join(self.name)
    }

    fn decisions(&self) -> Vec<Vec<Event>> {
        decisions(events(self.bodies))
    }
}

fn log_path(folder: &Path) -> PathBuf {
    folder.join("sessions").join(session(1).to_string()).join("events.ndjson")
}

#[tokio::test]
async fn the_golden_logs_are_written_the_same_today() {
    for golden in &LOGS {
        let folder = tempfile::tempdir().unwrap();
        write_decisions(folder.path(), &golden.decisions()).await;
        let today = fs::read_to_string(log_path(folder.path())).unwrap();
        // One that is there is never written again.
        if std::env::var_os(BLESS).is_some() && !golden.path().exists() {
            fs::write(golden.path(), &today).unwrap();
        }
        let frozen = fs::read_to_string(golden.path()).unwrap();
        for (number, (frozen, today)) in frozen.lines().zip(today.lines()).enumerate() {
            assert_eq!(frozen, today, "{}, line {}", golden.name, number + 1);
        }
        assert_eq!(frozen.len(), today.len());
    }
}

#[tokio::test]
async fn the_golden_logs_load_and_hold_every_event() {
    if std::env::var_os(BLESS).is_some() {
        eprintln!("skipped: a golden log may be being written");
        return;
    }
    let mut missing: Vec<&str> = Body::WIRE_TYPES.to_vec();
    for golden in &LOGS {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path()));
        fs::create_dir(log_path(folder.path()).parent().unwrap()).unwrap();
        fs::copy(golden.path(), log_path(folder.path())).unwrap();
        let store = open(folder.path());
        let events = read_all(&*store, session(1)).await;
        assert_eq!(events, golden.decisions().concat());
        assert!(store.notices().is_empty());
        missing.retain(|wire_type| !events.iter().any(|event| event.body.wire_type() == *wire_type));
        // What is passed on is what the event's own JSON is today.
        for stored in store.read(session(1), 0, Default::default()).await.unwrap() {
            assert_eq!(stored.json, serde_json::to_vec(&stored.parse().unwrap()).unwrap());
        }
    }
    assert_eq!(missing, Vec::<&str>::new(), "add these to a golden log of their own");
}

async fn write_decisions(folder: &Path, decisions: &[Vec<Event>]) {
    let store = open(folder);
    let (epoch, mut head) = store.create(session(1), &decisions[0]).await.unwrap();
    for decision in &decisions[1..] {
        head = store.append(session(1), epoch, head.seq, decision).await.unwrap();
    }
}

/// All events, in decisions of one to four.
fn decisions(mut left: Vec<Event>) -> Vec<Vec<Event>> {
    let mut decisions = Vec::new();
    for length in [1, 2, 3, 4].into_iter().cycle() {
        if left.is_empty() {
            break;
        }
        let rest = left.split_off(length.min(left.len()));
        decisions.push(std::mem::replace(&mut left, rest));
    }
    decisions
}

/// One of every type of the first log, with fields both filled and left out.
fn first_bodies(moment: &mut Moment) -> Vec<Body> {
    let bodies = [
        of_sessions(moment),
        of_turns(moment),
        of_models(moment),
        of_tools(moment),
        of_children(moment),
        of_repairs(moment),
        of_compactions(),
    ];
    bodies.concat()
}

fn events(bodies: fn(&mut Moment) -> Vec<Body>) -> Vec<Event> {
    let bodies = bodies(&mut moment(1));
    let actors = [Actor::user("http"), Actor::AGENT, Actor::POLICY, Actor::SYSTEM];
    let numbered = bodies.into_iter().zip(1..).map(|(body, seq)| Event {
        actor: actors[seq as usize % 4].clone(),
        turn_id: (seq > 6).then(|| turn(1)),
        key: (seq == 7).then(|| KeyUse {
            endpoint: "turns".into(),
            key: "k-1".into(),
            digest: "d".repeat(32),
            answer: Answer::Turn { turn_id: turn(1) },
        }),
        ..event(session(1), seq, body)
    });
    numbered.collect()
}

/// Changes that were looked at before they were made.
fn of_review(moment: &mut Moment) -> Vec<Body> {
    let created = of_sessions(moment).swap_remove(0);
    let tool_call_id = moment.call_id();
    let name = || "write_file".to_owned();
    let proposed = || {
        let diff = "--- a/greeting\n+++ b/greeting\n@@ -1 +1 @@\n-hello\n+good day\n".into();
        Proposed { diff, digest: "d".repeat(32) }
    };
    let usage = Usage { input_tokens: 210, output_tokens: 12, ..Usage::default() };
    let requested = ApprovalRequested {
        tool_call_id,
        name: name(),
        kind: ToolKind::Write,
        input: serde_json::json!({"path": "greeting", "content": "good day\n"}),
        subject: "greeting".into(),
        origin: CallOrigin::Model,
        expires_at: None,
        proposed: Some(proposed()),
    };
    let failed = ReviewFailed {
        tool_call_id,
        name: name(),
        attempt: 1,
        reason: Fault { stop_reason: Some(StopReason::MaxTokens), ..Fault::new(FaultKind::SchemaMismatch, "cut") },
        usage,
        cost_micro_usd: None,
        begun: true,
        retry_at: Some(Timestamp::from_ms(START_MS + 500)),
    };
    let completed = ReviewCompleted {
        tool_call_id,
        name: name(),
        verdict: Verdict::Deny,
        reason: "the task asks for a greeting by name".into(),
        model: "anthropic/claude".into(),
        usage,
        cost_micro_usd: Some(810),
    };
    let model = "anthropic/claude".into();
    vec![
        created,
        requested.into(),
        ReviewStarted { tool_call_id, name: name(), model, proposed: proposed() }.into(),
        failed.into(),
        completed.into(),
    ]
}

/// A turn that changed files, taken back; the log begins as any does.
fn of_undo(moment: &mut Moment) -> Vec<Body> {
    let created = of_sessions(moment).swap_remove(0);
    let (turn_id, tool_call_id) = (turn(1), moment.call_id());
    let unknown = || vec![UnknownWrite { tool_call_id, name: "write_file".into(), paths: vec!["x".into()] }];
    let changed = FileChange {
        path: "src/a.rs".into(),
        before: Some("0".repeat(64)),
        after: Some("1".repeat(64)),
        old_bytes: Some("artifacts/old".into()),
        mode: Some(0o755),
        mode_after: Some(0o755),
        real: Some("lib/a.rs".into()),
    };
    let made = FileChange { path: "new/b".into(), after: Some("2".repeat(64)), ..FileChange::default() };
    let full = CheckpointCreated {
        workspace_path: "/data/someone/project".into(),
        started_at: Timestamp::from_ms(1_735_689_600_000),
        files: vec![changed.clone(), made],
        folders: vec!["new".into()],
        unknown: unknown(),
        commands: true,
        incomplete: true,
        secrets: vec!["TOKEN".into()],
    };
    let lean = CheckpointCreated {
        files: vec![changed.clone()],
        folders: vec![],
        unknown: vec![],
        commands: false,
        incomplete: false,
        secrets: vec![],
        ..full.clone()
    };
    let intent = Intent { files: vec![changed], folders: vec!["new".into()] };
    let started = RestoreStarted { turn_id, intent, not_undone: vec!["target/x".into()], more_not_undone: true };
    let ended = |outcome, restored: &[&str], refused| WorkspaceRestored {
        turn_id,
        outcome,
        restored: restored.iter().map(|path| (*path).to_owned()).collect(),
        refused,
        not_undone: vec![],
        more_not_undone: false,
        unknown: unknown(),
    };
    let refused = || vec![RefusedFile { path: "src/a.rs".into(), why: "it was changed since".into() }];
    vec![
        created,
        full.into(),
        lean.into(),
        UndoRequested { turn_id, checkpoint_seq: 3 }.into(),
        RestoreStarted { not_undone: vec![], more_not_undone: false, ..started.clone() }.into(),
        started.into(),
        ended(RestoreOutcome::Restored, &["src/a.rs"], vec![]).into(),
        ended(RestoreOutcome::Refused, &[], refused()).into(),
        ended(RestoreOutcome::Unknown, &[], refused()).into(),
    ]
}

fn spent() -> Spent {
    Spent { steps: 2, tool_calls: 1, active_ms: 1500, usage: usage(), micro_usd: 4200, unpriced: false }
}

fn usage() -> Usage {
    Usage { input_tokens: 100, output_tokens: 20, cache_read_tokens: 3000, cache_write_tokens: 7 }
}

fn breach() -> Breach {
    Breach { budget: BudgetKind::ToolCalls, limit: 16, used: 16 }
}

fn of_sessions(moment: &mut Moment) -> Vec<Body> {
    let settings = Settings {
        workspace_path: "/data/someone/project".into(),
        system_prompt: Some("Be brief.\nÄ \"quote\" \\ and \u{2028}.".into()),
        auto_run: true,
        title: Some("A title".into()),
        model: "scripted/demo".into(),
        labels: vec!["a".into(), "b".into()],
        ..Settings::default()
    };
    let image = Part::Image { r#ref: "attachments/a.png".into(), mime_type: "image/png".into() };
    let message = MessageAdded {
        message_id: moment.message_id(),
        role: Role::User,
        parts: vec![Part::text("Hello, wörld 🦀"), image],
        delivery: Delivery::Steer,
        auto_run: false,
    };
    vec![
        SessionCreated { settings, policy: Default::default(), budgets: Default::default() }.into(),
        SessionUpdated { title: Some("Another".into()), labels: Some(vec![]), ..SessionUpdated::default() }.into(),
        message.into(),
        AttachmentAdded { attachment: golden_attachment() }.into(),
        SessionCompleted { reason: None }.into(),
        SessionFailed { code: "log_damaged".into(), message: "a sentence".into() }.into(),
        SessionCanceled { reason: Some("enough".into()) }.into(),
        SessionExpired { idle_ms: 604_800_000 }.into(),
    ]
}

fn of_turns(moment: &mut Moment) -> Vec<Body> {
    let messages = vec![MessageRef { id: moment.message_id(), seq: 3 }];
    let calls = vec![ClassedCall { tool_call_id: moment.call_id(), name: "shell".into(), class: CallClass::Unknown }];
    let completed = TurnCompleted {
        message_id: moment.message_id(),
        spent: spent(),
        cost_micro_usd: Some(4200),
        verification: Verification::Passed,
    };
    let (code, message) = ("overloaded".into(), "the model is overloaded".into());
    vec![
        MessageDelivered { message_id: moment.message_id(), step: 2 }.into(),
        TurnQueued { messages: messages.clone(), retry_of: None }.into(),
        TurnStarted { messages, retry_of: Some(moment.turn_id()), model: "scripted/demo".into() }.into(),
        completed.into(),
        TurnFailed { code, message, spent: spent(), cost_micro_usd: None }.into(),
        TurnCanceled { reason: None, left: vec!["pid 7".into()], spent: spent(), cost_micro_usd: None }.into(),
        TurnExpired { reached: breach(), spent: spent(), cost_micro_usd: Some(0) }.into(),
        TurnInterrupted { calls, active_ms: 0 }.into(),
        TurnResumed { automatic: true }.into(),
        CancelRequested { reason: Some("stop".into()), end_session: true }.into(),
        BudgetReached { reached: breach() }.into(),
        BudgetRaised { budgets: Default::default() }.into(),
    ]
}

fn of_models(moment: &mut Moment) -> Vec<Body> {
    let call = ToolCall {
        id: moment.call_id(),
        provider_id: Some("toolu_1".into()),
        name: "shell".into(),
        kind: ToolKind::Exec,
        input: serde_json::json!({"command": "git status"}),
        subject: "git status".into(),
        secrets: vec![],
        problem: None,
    };
    let seeded = ContextSeeded {
        source: SeedSource::New,
        files: vec![SeedFile { path: "AGENTS.md".into(), text: "# Rules\n".into(), truncated: true }],
        verify: Some(VerifyPlan { source: VerifySource::Makefile, commands: vec!["make test".into()] }),
        bundle: None,
    };
    let completed = ModelOutputCompleted {
        message_id: moment.message_id(),
        step: 1,
        attempt: 2,
        model: "scripted/demo".into(),
        text: "Let me look.".into(),
        thinking: vec![Thinking { text: "hm".into(), signature: Some("sig==".into()), origin: None }],
        tool_calls: vec![call],
        order: vec![],
        stop_reason: StopReason::ToolUse,
        usage: usage(),
        cost_micro_usd: Some(12),
    };
    let failed = ModelAttemptFailed {
        step: 1,
        attempt: 1,
        reason: Fault::new(FaultKind::StreamCut, "the stream ended early"),
        text: "Let m".into(),
        thinking: String::new(),
        usage: usage(),
        cost_micro_usd: None,
        begun: false,
        retry_at: Some(Timestamp::from_ms(START_MS + 5000)),
    };
    vec![seeded.into(), completed.into(), failed.into()]
}

fn of_tools(moment: &mut Moment) -> Vec<Body> {
    let tool_call_id = moment.call_id();
    let name = || "write_file".to_owned();
    let change = FileChange {
        path: "src/a.rs".into(),
        before: Some("0".repeat(64)),
        after: None,
        old_bytes: Some("artifacts/old".into()),
        mode: Some(0o644),
        ..FileChange::default()
    };
    let started = ToolCallStarted {
        tool_call_id,
        name: name(),
        kind: ToolKind::Write,
        input: serde_json::json!({"path": "src/a.rs", "text": "fn main() {}\n", "n": 1.5, "none": null}),
        runner: Runner::default(),
        origin: CallOrigin::Model,
        run: 1,
        intent: Intent { files: vec![change], folders: vec![] },
    };
    let completed = ToolCallCompleted {
        tool_call_id,
        name: name(),
        origin: CallOrigin::VerifyPolicy,
        outcome: Outcome::Finished,
        result: ToolResult::failed("no such folder"),
        duration_ms: 12,
    };
    let requested = ApprovalRequested {
        tool_call_id,
        name: name(),
        kind: ToolKind::Write,
        input: serde_json::json!([]),
        subject: "src/a.rs".into(),
        origin: CallOrigin::Model,
        expires_at: Some(Timestamp::from_ms(START_MS + 60_000)),
        proposed: None,
    };
    vec![
        started.into(),
        completed.into(),
        requested.into(),
        ApprovalGranted { tool_call_id, name: name(), scope: Scope::Session, reason: None }.into(),
        ApprovalDenied { tool_call_id, name: name(), scope: Scope::Once, reason: Some("not there".into()) }.into(),
        ApprovalExpired { tool_call_id, name: name() }.into(),
    ]
}

fn of_children(moment: &mut Moment) -> Vec<Body> {
    let child = session(2);
    vec![
        ChildStarted { child, tool_call_id: Some(moment.call_id()) }.into(),
        ChildWaiting { child, tool_call_id: moment.call_id(), name: "shell".into() }.into(),
        ChildSettled { child, ok: true, cost_micro_usd: None }.into(),
        SessionForked {
            from: child,
            at_seq: 7,
            title: Some("A fork".into()),
            model: None,
            workspace_path: Some("/data/someone/other".into()),
            labels: vec!["c".into()],
        }
        .into(),
    ]
}

/// What came later: added at the end, since the lines before it are never edited.
fn of_repairs(moment: &mut Moment) -> Vec<Body> {
    let named_alone = Artifact { r#ref: "artifacts/turn_1/a.txt".into(), content: None };
    let artifacts = vec![named_alone, Artifact::of("artifacts/turn_1/b.txt", b"b")];
    let completed = ToolCallCompleted {
        tool_call_id: moment.call_id(),
        name: "shell".into(),
        origin: CallOrigin::Model,
        outcome: Outcome::Finished,
        result: ToolResult { artifacts, ..ToolResult::ok("much") },
        duration_ms: 3,
    };
    vec![
        completed.into(),
        EventLost { reason: "its checksum does not fit".into() }.into(),
        SessionFailed { code: "log_damaged".into(), message: "1 event was lost".into() }.into(),
    ]
}

fn golden_attachment() -> Attachment {
    let (r#ref, mime_type) = ("attachments/0a1b-a.png".into(), "image/png".into());
    Attachment { r#ref, mime_type, bytes: 1234, digest: "0a1b".into() }
}

/// Came later, so it stands behind what was frozen before.
fn of_compactions() -> Vec<Body> {
    let started = CompactionStarted { trigger: CompactTrigger::Threshold, blocking: true, tokens: Some(9000) };
    let compacted = ContextCompacted {
        trigger: CompactTrigger::Overflow,
        request: Some("mend it".into()),
        summary: "They spoke of ${secret:DOOR}.".into(),
        secrets: vec!["DOOR".into()],
        kept_from: 7,
        context_from: 6,
        tokens_before: 9000,
        tokens_after: 700,
        model: "scripted/demo".into(),
        usage: usage(),
        cost_micro_usd: None,
    };
    let not_compacted = CompactionFailed {
        reason: Fault::new(FaultKind::Overloaded, "busy"),
        usage: usage(),
        cost_micro_usd: Some(3),
        begun: false,
        retry_at: None,
    };
    vec![started.into(), compacted.into(), not_compacted.into()]
}

/// Tools of others that were offered.
fn of_offers(moment: &mut Moment) -> Vec<Body> {
    let spec = ToolSpec {
        name: "mcp__docs__look".into(),
        description: "Looks.".into(),
        input_schema: serde_json::json!({"type": "object"}),
        kind: ToolKind::Network,
    };
    let created = of_sessions(moment).swap_remove(0);
    vec![created, ToolsOffered { tools: vec![OfferedTool { source: "mcp:docs".into(), spec }] }.into()]
}
