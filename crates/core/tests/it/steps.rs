//! What a session is told, in words that read as a script.

use serde_json::json;
use tenure_core::{
    budget::Budgets,
    command::{Command, FailedRestore, Input, ModelOutput, Partial, PreparedRestore, Review, Update, Verdict},
    context::{ChatMessage, Entry},
    event::{Actor, CompactTrigger, ContextCompacted, ContextSeeded, RefusedFile, SeedFile, SeedSource, ToolsOffered},
    message::{Delivery, Part, Role},
    model::{Fault, FaultKind, MicroUsd, StopReason, Usage},
    policy::{Policy, Scope},
    tool::{CallClass, FileChange, Intent, Outcome, ToolCall, ToolKind, ToolResult, VerifyPlan, VerifySource},
};

use crate::world::{World, call_id};

/// One line of a script: an input that may look at the world, or time that passes.
pub enum Step {
    Tell(Box<dyn Fn(&World) -> Input>),
    Wait(u64),
    Rewind(u64),
}

fn tell(input: impl Fn(&World) -> Input + 'static) -> Step {
    Step::Tell(Box::new(input))
}

pub fn command(command: Command) -> Step {
    tell(move |_| Input::Command { command: command.clone(), actor: Actor::user("test"), key: None })
}

/// The same step under an idempotency key.
pub fn keyed(key: &'static str, step: Step) -> Step {
    let Step::Tell(inner) = step else { panic!("only commands carry keys") };
    tell(move |world| match inner(world) {
        Input::Command { command, actor, .. } => Input::Command { command, actor, key: Some(key.into()) },
        other => other,
    })
}

/// Time passes.
pub fn wait(ms: u64) -> Step {
    Step::Wait(ms)
}

/// The clock is set back.
pub fn rewind(ms: u64) -> Step {
    Step::Rewind(ms)
}

// Messages.

pub fn message(text: &str, delivery: Delivery, auto_run: Option<bool>) -> Step {
    command(Command::SendMessage { role: Role::User, parts: vec![Part::text(text)], delivery, auto_run })
}

pub fn say(text: &str) -> Step {
    message(text, Delivery::Queue, None)
}

pub fn append(text: &str) -> Step {
    message(text, Delivery::Queue, Some(false))
}

pub fn steer(text: &str) -> Step {
    message(text, Delivery::Steer, None)
}

pub fn start_turn() -> Step {
    command(Command::StartTurn)
}

// The model.

pub const USAGE: Usage = Usage { input_tokens: 10, output_tokens: 5, cache_read_tokens: 100, cache_write_tokens: 1 };

fn output(calls: Vec<ToolCall>, cost: Option<MicroUsd>) -> ModelOutput {
    let stop_reason = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
    ModelOutput {
        text: "text".into(),
        thinking: vec![],
        calls,
        order: vec![],
        stop_reason,
        usage: USAGE,
        cost,
        guessed_tokens: 0,
    }
}

fn model_done(output: ModelOutput) -> Step {
    tell(move |world| {
        let turn = world.session.turn.as_ref().expect("a turn is open");
        let (step, attempt) = (turn.next_step(), turn.next_attempt());
        Input::ModelDone { turn: turn.id, step, attempt, output: output.clone() }
    })
}

/// The model's last word.
pub fn reply() -> Step {
    model_done(output(vec![], Some(7)))
}

pub fn reply_costing(cost: Option<MicroUsd>) -> Step {
    model_done(output(vec![], cost))
}

/// The model asks for calls.
pub fn asks(calls: impl IntoIterator<Item = ToolCall>) -> Step {
    model_done(output(calls.into_iter().collect(), Some(7)))
}

pub fn asks_costing(cost: Option<MicroUsd>, calls: impl IntoIterator<Item = ToolCall>) -> Step {
    model_done(output(calls.into_iter().collect(), cost))
}

/// A reply that names its step and attempt itself.
pub fn late_reply(turn: &'static str, step: u32, attempt: u32) -> Step {
    tell(move |world| Input::ModelDone { turn: world.turn(turn), step, attempt, output: output(vec![], Some(7)) })
}

pub fn fault(kind: FaultKind) -> Step {
    fault_with(Fault::new(kind, "the model failed"), partial(""))
}

pub fn fault_after(kind: FaultKind, retry_after_ms: u64) -> Step {
    fault_with(Fault { retry_after_ms: Some(retry_after_ms), ..Fault::new(kind, "the model failed") }, partial(""))
}

pub fn fault_with(fault: Fault, partial: Partial) -> Step {
    tell(move |world| {
        let turn = world.session.turn.as_ref().expect("a turn is open");
        let (step, attempt) = (turn.next_step(), turn.next_attempt());
        Input::ModelFailed { turn: turn.id, step, attempt, fault: fault.clone(), partial: partial.clone() }
    })
}

pub fn late_fault(turn: &'static str, step: u32, attempt: u32) -> Step {
    tell(move |world| Input::ModelFailed {
        turn: world.turn(turn),
        step,
        attempt,
        fault: Fault::new(FaultKind::Server, "late"),
        partial: Partial::default(),
    })
}

pub fn partial(text: &str) -> Partial {
    Partial { text: text.into(), ..Default::default() }
}

// Tools.

fn call(name: &str, tool: &str, kind: ToolKind, subject: &str) -> ToolCall {
    ToolCall {
        id: call_id(name),
        provider_id: Some(format!("toolu_{name}")),
        name: tool.into(),
        kind,
        input: json!({ "of": subject }),
        subject: subject.into(),
        secrets: vec![],
        problem: None,
    }
}

pub fn read(name: &str) -> ToolCall {
    call(name, "read_file", ToolKind::Read, "a.txt")
}

pub fn write(name: &str) -> ToolCall {
    call(name, "write_file", ToolKind::Write, "a.txt")
}

pub fn shell(name: &str, line: &str) -> ToolCall {
    call(name, "shell", ToolKind::Exec, line)
}

pub fn fetch(name: &str) -> ToolCall {
    call(name, "fetch_url", ToolKind::Network, "https://example.org")
}

/// The model itself asks for verification.
pub fn check_call(name: &str, commands: &str) -> ToolCall {
    call(name, "verify", ToolKind::Exec, commands)
}

pub fn malformed(name: &str) -> ToolCall {
    ToolCall { problem: Some("no such tool".into()), ..call(name, "sing", ToolKind::Exec, "") }
}

pub fn intent() -> Intent {
    let change = FileChange {
        path: "a.txt".into(),
        before: Some("b3".into()),
        after: Some("af".into()),
        old_bytes: Some("blob".into()),
        mode: Some(0o644),
        ..FileChange::default()
    };
    Intent { files: vec![change], folders: vec![] }
}

pub fn prepared(name: &'static str) -> Step {
    prepared_with(name, intent())
}

pub fn prepared_with(name: &'static str, intent: Intent) -> Step {
    tell(move |world| Input::ToolPrepared {
        turn: world.open_turn(),
        call: world.call(name),
        intent: Ok(intent.clone()),
        diff: Some("+x".into()),
    })
}

/// A write call that changes this file from one content to the other; `-` is none.
pub fn prepared_as(name: &'static str, path: &'static str, before: &'static str, after: &'static str) -> Step {
    let content = |digest: &str| (digest != "-").then(|| digest.to_owned());
    let (before, after) = (content(before), content(after));
    tell(move |world| {
        let change = FileChange {
            path: path.into(),
            before: before.clone(),
            after: after.clone(),
            old_bytes: before.as_ref().map(|digest| format!("artifacts/{digest}")),
            mode: before.as_ref().map(|_| 0o644),
            ..FileChange::default()
        };
        let intent = Ok(Intent { files: vec![change], folders: vec![] });
        Input::ToolPrepared { turn: world.open_turn(), call: world.call(name), intent, diff: Some("+x".into()) }
    })
}

// Undo.

pub fn undo() -> Step {
    command(Command::Undo { turn_id: None })
}

pub fn undo_turn(turn: &'static str) -> Step {
    in_turn(turn, |turn_id| Command::Undo { turn_id: Some(turn_id) })
}

fn undo_under_way(world: &World) -> u64 {
    world.session.restoring.as_ref().map_or(0, |restoring| restoring.undo)
}

/// Every file is what the turn left.
pub fn restorable() -> Step {
    tell(|world| {
        let prepared = PreparedRestore { intent: intent(), not_undone: vec!["log".into()], more_not_undone: false };
        Input::RestorePrepared { undo: undo_under_way(world), prepared: Ok(prepared) }
    })
}

pub fn drifted() -> Step {
    tell(|world| Input::RestorePrepared { undo: undo_under_way(world), prepared: Err(refused_file()) })
}

pub fn put_back() -> Step {
    tell(|world| Input::RestoreDone { undo: undo_under_way(world), done: Ok(()) })
}

pub fn not_put_back() -> Step {
    tell(|world| {
        let done = Err(FailedRestore::Nothing(refused_file()));
        Input::RestoreDone { undo: undo_under_way(world), done }
    })
}

fn refused_file() -> Vec<RefusedFile> {
    vec![RefusedFile { path: "a.txt".into(), why: "it was changed since".into() }]
}

/// The daemon died while files were put back, and they were looked at.
pub fn crash_restoring(class: Option<CallClass>) -> Step {
    tell(move |_| Input::Recover { classes: vec![], restore: class, partial: partial(""), seen: None })
}

pub fn unprepared(name: &'static str) -> Step {
    tell(move |world| Input::ToolPrepared {
        turn: world.open_turn(),
        call: world.call(name),
        intent: Err("the file changed".into()),
        diff: None,
    })
}

/// A model looked at the change of this call.
pub fn reviewed(name: &'static str, verdict: Verdict) -> Step {
    tell(move |world| {
        let usage = Usage { input_tokens: 3, ..Usage::default() };
        let review = Review { verdict, reason: "so it is".into(), usage, cost: Some(4) };
        Input::Reviewed { turn: world.open_turn(), call: world.call(name), attempt: world.review_attempt(name), review }
    })
}

/// The model that was to look at it failed.
pub fn review_fails(name: &'static str, kind: FaultKind) -> Step {
    tell(move |world| Input::ReviewFailed {
        turn: world.open_turn(),
        call: world.call(name),
        attempt: world.review_attempt(name),
        fault: Fault::new(kind, "no"),
        partial: Partial::default(),
    })
}

fn tool_done(name: &'static str, result: ToolResult) -> Step {
    ended(name, Outcome::Finished, result)
}

/// The turn's time is up, and nothing of it runs.
pub fn time_up() -> Step {
    tell(|world| Input::TimeUp { turn: world.open_turn() })
}

fn ended(name: &'static str, outcome: Outcome, result: ToolResult) -> Step {
    tell(move |world| {
        let turn = world.session.turn.as_ref().expect("a turn is open");
        let call = world.call(name);
        let run = turn.call(call).map_or(1, |call| call.runs);
        Input::ToolDone { turn: turn.id, call, run, outcome, result: result.clone(), duration_ms: 3 }
    })
}

/// It was stopped because the turn's time was up.
pub fn cut(name: &'static str) -> Step {
    ended(name, Outcome::Canceled, ToolResult::failed(format!("{name} was stopped")))
}

pub fn done(name: &'static str) -> Step {
    tool_done(name, ToolResult::ok(format!("result of {name}")))
}

pub fn broke(name: &'static str) -> Step {
    tool_done(name, ToolResult::failed(format!("{name} broke")))
}

pub fn late_done(turn: &'static str, name: &'static str, run: u32) -> Step {
    tell(move |world| Input::ToolDone {
        turn: world.turn(turn),
        call: world.call(name),
        run,
        outcome: Outcome::Finished,
        result: ToolResult::ok("late"),
        duration_ms: 3,
    })
}

// Approvals.

fn answer(turn: Option<&'static str>, name: &'static str, verdict: Verdict, scope: Scope) -> Step {
    tell(move |world| {
        let turn_id = turn.map(|turn| world.turn(turn));
        let command = Command::Answer { turn_id, call: world.call(name), verdict, scope, reason: None };
        Input::Command { command, actor: Actor::user("test"), key: None }
    })
}

pub fn approve(name: &'static str) -> Step {
    answer(None, name, Verdict::Approve, Scope::Once)
}

pub fn approve_for(scope: Scope, name: &'static str) -> Step {
    answer(None, name, Verdict::Approve, scope)
}

pub fn approve_in(turn: &'static str, name: &'static str) -> Step {
    answer(Some(turn), name, Verdict::Approve, Scope::Once)
}

pub fn deny(name: &'static str) -> Step {
    answer(None, name, Verdict::Deny, Scope::Once)
}

pub fn deny_for(scope: Scope, name: &'static str) -> Step {
    answer(None, name, Verdict::Deny, scope)
}

pub fn woke(name: &'static str) -> Step {
    tell(move |world| Input::Woke { call: world.call(name) })
}

// Stops, crashes and new beginnings.

pub fn cancel() -> Step {
    command(Command::Cancel { turn_id: None, reason: None })
}

pub fn cancel_turn(turn: &'static str) -> Step {
    in_turn(turn, |turn_id| Command::Cancel { turn_id: Some(turn_id), reason: None })
}

fn in_turn(turn: &'static str, make: fn(tenure_core::ids::TurnId) -> Command) -> Step {
    tell(move |world| {
        let turn = world.turns.get(turn[1..].parse::<usize>().unwrap() - 1).copied();
        let turn = turn.unwrap_or(tenure_core::ids::TurnId::new(ulid::Ulid::from_parts(1, 1)));
        Input::Command { command: make(turn), actor: Actor::user("test"), key: None }
    })
}

pub fn gone() -> Step {
    gone_with(&[], None)
}

pub fn gone_with(left: &[&str], cut: Option<Partial>) -> Step {
    let left: Vec<String> = left.iter().map(|left| (*left).to_owned()).collect();
    tell(move |world| {
        let (turn, left, cut) = (world.open_turn(), left.clone(), cut.clone());
        Input::WorkGone { turn, left, took: Vec::new(), cut }
    })
}

/// The daemon died and is back.
pub fn crash() -> Step {
    crash_with([], "")
}

pub fn crash_with<const N: usize>(classes: [(&'static str, CallClass); N], text: &'static str) -> Step {
    tell(move |world| {
        let classes = classes.iter().map(|(name, class)| (world.call(name), *class)).collect();
        Input::Recover { classes, restore: None, partial: partial(text), seen: None }
    })
}

/// A crash in the middle of a reply, of which this had come.
pub fn crash_in(partial: Partial) -> Step {
    tell(move |_| Input::Recover { classes: vec![], restore: None, partial: partial.clone(), seen: None })
}

pub fn resume(turn: &'static str) -> Step {
    in_turn(turn, |turn_id| Command::Resume { turn_id })
}

pub fn retry(turn: &'static str) -> Step {
    in_turn(turn, |turn_id| Command::Retry { turn_id })
}

pub fn end() -> Step {
    command(Command::End { reason: None })
}

pub fn expire() -> Step {
    tell(|_| Input::Expire { idle_ms: 1000 })
}

// Compaction.

/// The next request takes so many tokens of a window of 100.
pub fn measured(tokens: u64) -> Step {
    tell(move |world| Input::ContextMeasured { turn: world.open_turn(), tokens, window: 100 })
}

pub fn compact() -> Step {
    command(Command::Compact)
}

/// A summary of all but the last word; the context has 20 tokens then.
pub fn summary() -> Step {
    summary_costing(Some(3))
}

pub fn summary_costing(cost_micro_usd: Option<MicroUsd>) -> Step {
    summary_leaving(20, cost_micro_usd)
}

/// A summary that is as long as what it tells.
pub fn summary_in_vain() -> Step {
    summary_leaving(90, Some(3))
}

fn summary_leaving(tokens_after: u64, cost_micro_usd: Option<MicroUsd>) -> Step {
    tell(move |world| {
        let transcript = crate::context::transcript(world);
        let is_word = |entry: &&Entry| !matches!(*entry.message, ChatMessage::Tool { .. });
        let kept = transcript.entries().iter().rfind(is_word).expect("somebody said something");
        let compacted = ContextCompacted {
            trigger: CompactTrigger::Asked,
            summary: "what was before".into(),
            request: None,
            secrets: vec![],
            kept_from: kept.seq,
            context_from: kept.body_seq.min(kept.seq),
            tokens_before: 90,
            tokens_after,
            model: "model".into(),
            usage: USAGE,
            cost_micro_usd,
        };
        Input::Compacted { attempt: next_summary(world), compacted }
    })
}

pub fn summary_failed(kind: FaultKind) -> Step {
    tell(move |world| Input::CompactFailed {
        attempt: next_summary(world),
        fault: Fault::new(kind, "the model failed"),
        partial: Partial { usage: USAGE, cost: Some(3), ..Partial::default() },
    })
}

/// A summary whose stream broke.
pub fn summary_broken(partial: Partial) -> Step {
    tell(move |world| Input::CompactFailed {
        attempt: next_summary(world),
        fault: Fault::new(FaultKind::Server, "it broke"),
        partial: partial.clone(),
    })
}

/// A failure of an attempt that is not under way.
pub fn late_summary_failed(attempt: u32) -> Step {
    let fault = Fault::new(FaultKind::Server, "late");
    tell(move |_| Input::CompactFailed {
        attempt,
        fault: fault.clone(),
        partial: Partial { usage: USAGE, ..Partial::default() },
    })
}

fn next_summary(world: &World) -> u32 {
    world.session.compaction.as_ref().map_or(1, |compaction| compaction.attempts.made + 1)
}

// Settings.

pub fn raise(budgets: Budgets) -> Step {
    command(Command::Update(Box::new(Update { budgets: Some(budgets), ..Update::default() })))
}

pub fn change_policy(policy: Policy) -> Step {
    let policy = Some(policy);
    command(Command::Update(Box::new(Update { policy, ..Update::default() })))
}

pub fn rename(title: &str, if_match: Option<u64>) -> Step {
    command(Command::Update(Box::new(Update { title: Some(title.into()), if_match, ..Update::default() })))
}

pub fn unlimited() -> Budgets {
    Budgets { max_steps: None, max_tool_calls: None, max_duration_ms: None, max_tokens: None, max_micro_usd: None }
}

/// What the workspace says, with a verification plan from this source.
pub fn found(source: VerifySource, commands: &[&str]) -> Step {
    let commands = commands.iter().map(|line| (*line).to_owned()).collect();
    let seed = ContextSeeded {
        source: SeedSource::New,
        files: vec![SeedFile { path: "AGENTS.md".into(), text: "be kind".into(), truncated: false }],
        verify: Some(VerifyPlan { source, commands }),
        bundle: None,
    };
    seeded(seed)
}

pub fn seeded(seed: ContextSeeded) -> Step {
    tell(move |_| Input::ContextFound(seed.clone()))
}

/// What can be offered beside the built-in tools.
pub fn offered(offer: ToolsOffered) -> Step {
    tell(move |_| Input::ToolsFound(offer.clone()))
}
