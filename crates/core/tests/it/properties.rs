//! Any order of inputs: what must hold after each of them, and that every turn comes to its end.

use proptest::prelude::*;
use tenure_core::{
    budget::Budgets,
    command::{Command, FailedRestore, Input, ModelOutput, Partial, PreparedRestore, Review, Update, Verdict},
    context::ChatMessage,
    event::{Actor, ContextCompacted, ContextSeeded, RefusedFile, SeedFile, SeedSource, SessionCreated},
    ids::CallId,
    message::{Delivery, Part, Role},
    model::{Fault, FaultKind, StopReason, Usage},
    policy::{PatchReview, Policy, Resume, Rule, RuleAction, Scope},
    session::{CallState, Effect, Life, Phase, RestoringPhase},
    tool::{CallClass, FileChange, Intent, Outcome, ToolCall, ToolKind, ToolResult, VerifyPlan, VerifySource},
};

use crate::{
    context::transcript,
    laws::Laws,
    steps::unlimited,
    world::{World, call_id, plain},
};

/// One thing that happens. Numbers choose among what is there.
#[derive(Debug, Clone)]
enum Act {
    Say {
        delivery: Delivery,
        auto_run: Option<bool>,
        key: Option<u8>,
    },
    StartTurn,
    Answer {
        which: u8,
        approve: bool,
        scope: Scope,
    },
    Cancel {
        queued: Option<u8>,
        key: Option<u8>,
    },
    Retry {
        which: u8,
    },
    Resume,
    Raise {
        by: u64,
    },
    SetPolicy(Box<Policy>),
    Rename,
    End,
    Undo {
        which: Option<u8>,
        key: Option<u8>,
    },
    Compact,
    /// The window is full by so much of 255.
    Measure {
        tokens: u8,
    },
    Expire,
    Seed {
        source: VerifySource,
        commands: u8,
    },
    /// One of the effects that are wanted is answered, well or badly.
    Serve {
        which: u8,
        how: u8,
        calls: Vec<u8>,
    },
    /// An answer nobody waits for.
    Junk {
        how: u8,
    },
    Crash {
        classes: Vec<u8>,
    },
    Wait {
        ms: u64,
    },
    Rewind {
        ms: u64,
    },
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![3 => Just(Scope::Once), 1 => Just(Scope::Session), 1 => Just(Scope::Always)]
}

fn policy() -> impl Strategy<Value = Policy> {
    let rule = (0..4usize, 0..3usize).prop_map(|(tool, action)| Rule {
        tool: ["shell", "write_file", "verify", "*"][tool].into(),
        pattern: Some("c0".into()),
        exact: None,
        action: [RuleAction::Allow, RuleAction::Ask, RuleAction::Deny][action],
    });
    let kinds =
        proptest::sample::subsequence(vec![ToolKind::Read, ToolKind::Write, ToolKind::Exec, ToolKind::Network], 0..=3);
    let verify = (any::<bool>(), proptest::option::of(0..3usize), 0..3u32);
    let recovery = prop_oneof![Just(Resume::Ask), Just(Resume::Safe), Just(Resume::Always)];
    let review =
        prop_oneof![2 => Just(PatchReview::Off), 1 => Just(PatchReview::Request), 1 => Just(PatchReview::Auto)];
    let approval = (proptest::collection::vec(rule, 0..2), kinds, prop::bool::weighted(0.8), any::<bool>());
    (approval, verify, recovery, review).prop_map(
        |((rules, kinds, attended, expires), (auto_verify, commands, max_attempts), resume, review)| {
            let mut policy = Policy::default();
            policy.approval.rules = rules;
            policy.approval.require_for_kinds = kinds;
            policy.approval.attended = attended;
            policy.approval.expires_after_ms = expires.then_some(50);
            policy.verify.auto_verify = auto_verify;
            policy.verify.commands = commands.map(|count| vec!["make".into(); count]);
            policy.verify.max_attempts = max_attempts;
            policy.recovery.resume = resume;
            policy.patch_review = review;
            policy
        },
    )
}

fn budgets() -> impl Strategy<Value = Budgets> {
    let limit = |max: u64| proptest::option::weighted(0.3, 0..max);
    (limit(8), limit(8), limit(500), limit(200), limit(60)).prop_map(|(steps, calls, time, tokens, money)| Budgets {
        max_steps: steps,
        max_tool_calls: calls,
        max_duration_ms: time,
        max_tokens: tokens,
        max_micro_usd: money,
    })
}

fn act() -> impl Strategy<Value = Act> {
    let delivery = prop_oneof![Just(Delivery::Queue), Just(Delivery::Steer)];
    let key = || proptest::option::weighted(0.2, 0..3u8);
    let source = prop_oneof![
        Just(VerifySource::Config),
        Just(VerifySource::AgentsMd),
        Just(VerifySource::Makefile),
        Just(VerifySource::Policy),
    ];
    prop_oneof![
        6 => (delivery, proptest::option::weighted(0.2, any::<bool>()), key())
            .prop_map(|(delivery, auto_run, key)| Act::Say { delivery, auto_run, key }),
        1 => Just(Act::StartTurn),
        6 => (any::<u8>(), prop::bool::weighted(0.7), scope())
            .prop_map(|(which, approve, scope)| Act::Answer { which, approve, scope }),
        2 => (proptest::option::weighted(0.3, any::<u8>()), key()).prop_map(|(queued, key)| Act::Cancel { queued, key }),
        1 => any::<u8>().prop_map(|which| Act::Retry { which }),
        2 => Just(Act::Resume),
        2 => (1..6u64).prop_map(|by| Act::Raise { by }),
        1 => policy().prop_map(|policy| Act::SetPolicy(Box::new(policy))),
        1 => Just(Act::Rename),
        1 => prop::bool::weighted(0.3).prop_map(|end| if end { Act::End } else { Act::Rename }),
        1 => prop::bool::weighted(0.1).prop_map(|expire| if expire { Act::Expire } else { Act::StartTurn }),
        1 => Just(Act::Compact),
        3 => (proptest::option::weighted(0.4, any::<u8>()), key()).prop_map(|(which, key)| Act::Undo { which, key }),
        2 => any::<u8>().prop_map(|tokens| Act::Measure { tokens }),
        1 => (source, any::<u8>()).prop_map(|(source, commands)| Act::Seed { source, commands }),
        25 => (any::<u8>(), any::<u8>(), proptest::collection::vec(any::<u8>(), 0..4))
            .prop_map(|(which, how, calls)| Act::Serve { which, how, calls }),
        2 => any::<u8>().prop_map(|how| Act::Junk { how }),
        4 => proptest::collection::vec(any::<u8>(), 0..4).prop_map(|classes| Act::Crash { classes }),
        2 => (0..200u64).prop_map(|ms| Act::Wait { ms }),
        1 => (0..50u64).prop_map(|ms| Act::Rewind { ms }),
    ]
}

/// What a write call does: nothing, or something to one of a few files.
fn changing(how: u8) -> Intent {
    let state = |what: u8| (!what.is_multiple_of(4)).then(|| format!("d{}", what % 4));
    let file = FileChange {
        path: format!("f{}", how % 3),
        before: state(how / 3),
        after: state(how / 12),
        mode: Some(0o644),
        ..FileChange::default()
    };
    let folders = if how.is_multiple_of(7) { vec!["made".to_owned()] } else { vec![] };
    if how.is_multiple_of(5) { Intent::default() } else { Intent { files: vec![file], folders } }
}

/// A world and the laws that watch it.
struct Play {
    world: World,
    laws: Laws,
    calls: u32,
}

impl Play {
    fn new(created: SessionCreated) -> Play {
        let world = World::new(created);
        let mut laws = Laws::new(&world.events[0]);
        laws.watch(&world);
        Play { world, laws, calls: 0 }
    }

    /// Tells one input; a refusal is an answer too, and leaves everything as it was.
    fn tell(&mut self, input: Input) -> bool {
        let taken = self.world.tell(input).is_ok();
        self.laws.watch(&self.world);
        taken
    }

    fn command(&mut self, command: Command, key: Option<u8>) -> bool {
        let key = key.map(|key| format!("k{key}"));
        self.tell(Input::Command { command, actor: Actor::user("test"), key })
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Say { delivery, auto_run, key } => {
                let parts = vec![Part::text("text")];
                self.command(Command::SendMessage { role: Role::User, parts, delivery, auto_run }, key);
            }
            Act::StartTurn => {
                self.command(Command::StartTurn, None);
            }
            Act::Answer { which, approve, scope } => self.answer(which, approve, scope),
            Act::Cancel { queued, key } => {
                let queue = &self.world.session.queue;
                let turn_id = queued.filter(|_| !queue.is_empty()).map(|n| queue[usize::from(n) % queue.len()].id);
                self.command(Command::Cancel { turn_id, reason: None }, key);
            }
            Act::Retry { which } => {
                if let Some(turn_id) = pick(&self.world.turns, which) {
                    self.command(Command::Retry { turn_id }, None);
                }
            }
            Act::Resume => {
                if let Some(turn_id) = self.world.turns.last().copied() {
                    let turn_id = self.world.session.turn.as_ref().map_or(turn_id, |turn| turn.id);
                    self.command(Command::Resume { turn_id }, None);
                }
            }
            Act::Raise { by } => {
                let raised = |limit: Option<u64>| limit.map(|limit| limit + by);
                let old = &self.world.session.budgets;
                let budgets = Budgets {
                    max_steps: raised(old.max_steps),
                    max_tool_calls: raised(old.max_tool_calls),
                    max_duration_ms: raised(old.max_duration_ms),
                    max_tokens: raised(old.max_tokens),
                    max_micro_usd: raised(old.max_micro_usd),
                };
                self.update(None, None, Some(budgets));
            }
            Act::SetPolicy(policy) => self.update(None, Some(policy), None),
            Act::Rename => self.update(Some("title".into()), None, None),
            Act::End => {
                self.command(Command::End { reason: None }, None);
            }
            Act::Undo { which, key } => {
                let turn_id = which.and_then(|which| pick(&self.world.turns, which));
                self.command(Command::Undo { turn_id }, key);
            }
            Act::Compact => {
                self.command(Command::Compact, None);
            }
            Act::Measure { tokens } => {
                if let Some(turn) = self.world.session.turn.as_ref().map(|turn| turn.id) {
                    self.tell(Input::ContextMeasured { turn, tokens: tokens.into(), window: 255 });
                }
            }
            Act::Expire => {
                self.tell(Input::Expire { idle_ms: 1 });
            }
            Act::Seed { source, commands } => {
                let files = vec![SeedFile { path: "AGENTS.md".into(), text: commands.to_string(), truncated: false }];
                let commands = vec![format!("c{}", commands % 3)];
                let verify = Some(VerifyPlan { source, commands });
                self.tell(Input::ContextFound(ContextSeeded { source: SeedSource::New, files, verify, bundle: None }));
            }
            Act::Serve { which, how, calls } => {
                if let Some(effect) = pick(&self.world.session.wanted(), which) {
                    self.serve(effect, how, &calls);
                }
            }
            Act::Junk { how } => self.junk(how),
            Act::Crash { classes } => self.crash(&classes),
            Act::Wait { ms } => self.world.now_ms += ms,
            Act::Rewind { ms } => self.world.now_ms -= ms,
        }
    }

    fn update(&mut self, title: Option<String>, policy: Option<Box<Policy>>, budgets: Option<Budgets>) {
        self.command(
            Command::Update(Box::new(Update {
                title,
                policy: policy.map(|policy| *policy),
                budgets,
                ..Update::default()
            })),
            None,
        );
    }

    /// The calls of the open turn that wait for a yes.
    fn waiting(&self) -> Vec<CallId> {
        let calls = self.world.session.turn.iter().flat_map(|turn| &turn.calls);
        calls.filter(|call| matches!(call.state, CallState::Waiting { .. })).map(|call| call.call.id).collect()
    }

    fn answer(&mut self, which: u8, approve: bool, scope: Scope) {
        let call = pick(&self.waiting(), which).unwrap_or_else(|| call_id("none"));
        let verdict = if approve { Verdict::Approve } else { Verdict::Deny };
        self.command(Command::Answer { turn_id: None, call, verdict, scope, reason: None }, None);
    }

    /// Does what an effect asks for. Whatever was wanted must be taken.
    fn serve(&mut self, effect: Effect, how: u8, calls: &[u8]) {
        let input = match effect {
            Effect::CallModel { turn, step, attempt, not_before } => {
                self.world.now_ms = self.world.now_ms.max(not_before.map_or(0, |at| at.ms()));
                let usage = Usage { input_tokens: 3, output_tokens: u64::from(how % 8), ..Default::default() };
                let cost = (!how.is_multiple_of(3)).then_some(u64::from(how % 4));
                match FAULTS.get(usize::from(how)) {
                    Some(kind) => {
                        let partial = Partial { text: "part".into(), usage, cost, ..Default::default() };
                        Input::ModelFailed { turn, step, attempt, fault: Fault::new(*kind, "failed"), partial }
                    }
                    None => {
                        let calls: Vec<ToolCall> = calls.iter().map(|kind| self.new_call(*kind)).collect();
                        let stop_reason = StopReason::EndTurn;
                        let output = ModelOutput {
                            text: "text".into(),
                            thinking: vec![],
                            calls,
                            stop_reason,
                            usage,
                            cost,
                            guessed_tokens: 0,
                        };
                        Input::ModelDone { turn, step, attempt, output }
                    }
                }
            }
            Effect::Compact { attempt, not_before } => {
                self.world.now_ms = self.world.now_ms.max(not_before.map_or(0, |at| at.ms()));
                let usage = Usage { input_tokens: 2, ..Default::default() };
                match FAULTS.get(usize::from(how)) {
                    Some(kind) => Input::CompactFailed {
                        attempt,
                        fault: Fault::new(*kind, "failed"),
                        partial: Partial { usage, ..Partial::default() },
                    },
                    None => Input::Compacted { attempt, compacted: self.compacted(how, usage) },
                }
            }
            Effect::PrepareTool { turn, call } => {
                let intent = if how.is_multiple_of(4) { Err("cannot".into()) } else { Ok(changing(how)) };
                Input::ToolPrepared { turn, call, intent, diff: Some("+x".into()) }
            }
            Effect::ReviewChange { turn, call, attempt, not_before } => {
                self.world.now_ms = self.world.now_ms.max(not_before.map_or(0, |at| at.ms()));
                let usage = Usage { input_tokens: 3, ..Default::default() };
                match FAULTS.get(usize::from(how)) {
                    Some(kind) => Input::ReviewFailed {
                        turn,
                        call,
                        attempt,
                        fault: Fault::new(*kind, "failed"),
                        partial: Partial { usage, ..Partial::default() },
                    },
                    None => {
                        let verdict = if how.is_multiple_of(2) { Verdict::Approve } else { Verdict::Deny };
                        let review = Review { verdict, reason: "so".into(), usage, cost: Some(1) };
                        Input::Reviewed { turn, call, attempt, review }
                    }
                }
            }
            Effect::RunTool { turn, call, run } => {
                let result = if how.is_multiple_of(3) { ToolResult::failed("no") } else { ToolResult::ok("yes") };
                Input::ToolDone { turn, call, run, outcome: Outcome::Finished, result, duration_ms: 1 }
            }
            Effect::PrepareRestore { undo } => {
                let refused = || vec![RefusedFile { path: "f0".into(), why: "it was changed since".into() }];
                let prepared = PreparedRestore { intent: changing(how), ..PreparedRestore::default() };
                Input::RestorePrepared {
                    undo,
                    prepared: if how.is_multiple_of(3) { Err(refused()) } else { Ok(prepared) },
                }
            }
            Effect::RestoreWorkspace { undo } => {
                let refused = || vec![RefusedFile { path: "f0".into(), why: "the disk is full".into() }];
                let done = match how % 4 {
                    0 => Err(FailedRestore::Nothing(refused())),
                    1 => Err(FailedRestore::InPart(refused())),
                    _ => Ok(()),
                };
                Input::RestoreDone { undo, done }
            }
            Effect::TimeUp { turn, at } => {
                self.world.now_ms = self.world.now_ms.max(at.ms());
                self.cut(how).unwrap_or(Input::TimeUp { turn })
            }
            Effect::Wake { call, at } => {
                self.world.now_ms = self.world.now_ms.max(at.ms());
                Input::Woke { call }
            }
            Effect::ReportGone { turn } => {
                let left = if how.is_multiple_of(5) { vec!["pid 7".to_owned()] } else { vec![] };
                let open = self.world.session.turn.as_ref().expect("a turn is open");
                let idle = open.calls.iter().all(|call| call.is_done());
                let cut = (idle && how.is_multiple_of(2)).then(Partial::default);
                Input::WorkGone { turn, left, took: vec![], cut }
            }
        };
        self.world.now_ms += u64::from(how % 16);
        assert!(self.tell(input), "what was wanted is taken");
    }

    /// What runs when the time is up tells its end first.
    fn cut(&self, how: u8) -> Option<Input> {
        let open = self.world.session.turn.as_ref().expect("a turn is open");
        let turn = open.id;
        let fault = Fault::new(FaultKind::Canceled, "the time is up");
        self.world.session.wanted().into_iter().find_map(|effect| match effect {
            Effect::RunTool { call, run, .. } => {
                let (outcome, result) = (Outcome::Canceled, ToolResult::failed("stopped"));
                Some(Input::ToolDone { turn, call, run, outcome, result, duration_ms: 1 })
            }
            Effect::CallModel { step, attempt, .. } if how.is_multiple_of(2) => {
                let (fault, partial) = (fault.clone(), Partial::default());
                Some(Input::ModelFailed { turn, step, attempt, fault, partial })
            }
            _ => None,
        })
    }

    /// A summary of some of what the context holds.
    fn compacted(&self, how: u8, usage: Usage) -> ContextCompacted {
        let session = &self.world.session;
        let transcript = transcript(&self.world);
        let spoken = transcript.entries().iter().filter(|entry| !matches!(*entry.message, ChatMessage::Tool { .. }));
        let spoken: Vec<u64> = spoken.map(|entry| entry.seq).collect();
        let kept_from = pick(&spoken, how).unwrap_or(session.context_from).max(session.context_from);
        let kept = transcript.entries().iter().filter(|entry| entry.seq >= kept_from);
        let context_from = kept.map(|entry| entry.body_seq).min().unwrap_or(kept_from).min(kept_from);
        ContextCompacted {
            trigger: session.compaction.as_ref().expect("one is under way").trigger,
            summary: "before".into(),
            request: how.is_multiple_of(2).then(|| "do it".into()),
            secrets: vec![],
            kept_from,
            context_from,
            tokens_before: 9,
            // Some are no shorter than what they tell.
            tokens_after: u64::from(how % 12),
            model: "scripted".into(),
            usage,
            cost_micro_usd: None,
        }
    }

    fn new_call(&mut self, kind: u8) -> ToolCall {
        self.calls += 1;
        let (name, tool_kind) = [
            ("read_file", ToolKind::Read),
            ("write_file", ToolKind::Write),
            ("shell", ToolKind::Exec),
            ("fetch_url", ToolKind::Network),
            ("verify", ToolKind::Exec),
        ][usize::from(kind % 5)];
        ToolCall {
            id: call_id(&format!("c{}", self.calls)),
            provider_id: None,
            name: name.into(),
            kind: tool_kind,
            input: serde_json::json!({ "n": kind }),
            subject: format!("c{}", kind / 5 % 3),
            secrets: vec![],
            problem: kind.is_multiple_of(17).then(|| "malformed".into()),
        }
    }

    /// Answers of work that is not wanted: they are refused.
    fn junk(&mut self, how: u8) {
        let Some(turn) = pick(&self.world.turns, how) else { return };
        let call = call_id(&format!("c{}", u32::from(how) % (self.calls + 1)));
        let input = match how % 4 {
            0 => Input::ModelFailed {
                turn,
                step: 1,
                attempt: 99,
                fault: Fault::new(FaultKind::Server, "late"),
                partial: Partial::default(),
            },
            1 => {
                let (outcome, result) = (Outcome::Finished, ToolResult::ok("late"));
                Input::ToolDone { turn, call, run: 99, outcome, result, duration_ms: 0 }
            }
            2 => Input::ToolPrepared {
                turn: tenure_core::ids::TurnId::new(turn.ulid().increment().unwrap()),
                call,
                intent: Ok(Intent::default()),
                diff: None,
            },
            _ => Input::Woke { call: call_id("none") },
        };
        assert!(!self.tell(input), "what nobody waits for is refused");
    }

    fn crash(&mut self, classes_of: &[u8]) {
        let calls = self.world.session.turn.iter().flat_map(|turn| &turn.calls);
        let class =
            |class: &u8| [CallClass::NotStarted, CallClass::Finished, CallClass::Unknown][usize::from(*class % 3)];
        let classes = calls.map(|call| call.call.id).zip(classes_of.iter().map(class)).collect();
        let partial = Partial { text: "half".into(), ..Default::default() };
        let restore = classes_of.first().map(class);
        assert!(
            self.tell(Input::Recover { classes, restore, partial, seen: Some(self.world.now()) }),
            "a recovery is never refused"
        );
    }

    /// Everything is answered well until nothing is open. The number of answers is bounded.
    fn drive_to_the_end(&mut self) {
        for _ in 0..2_000 {
            if let Some(restoring) = &self.world.session.restoring {
                let undo = restoring.undo;
                let effect = match restoring.phase {
                    RestoringPhase::Preparing => Effect::PrepareRestore { undo },
                    RestoringPhase::Started { .. } => Effect::RestoreWorkspace { undo },
                };
                self.serve(effect, 31, &[]);
                continue;
            }
            let Some(turn) = &self.world.session.turn else { return };
            let turn_id = turn.id;
            match turn.phase {
                Phase::Interrupted => assert!(self.command(Command::Resume { turn_id }, None)),
                Phase::Budget(_) if self.world.session.wanted().is_empty() => {
                    self.update(None, None, Some(unlimited()));
                }
                _ => match (self.waiting().first().copied(), self.world.session.wanted().first().copied()) {
                    (Some(_), _) if turn.phase == Phase::Going => self.answer(0, true, Scope::Once),
                    (_, Some(effect)) => self.serve(effect, 31, &[]),
                    (_, None) => panic!("nothing is wanted and nobody is asked: {:?}", turn.phase),
                },
            }
        }
        panic!("a turn did not come to its end");
    }
}

const FAULTS: [FaultKind; 9] = [
    FaultKind::Server,
    FaultKind::RateLimited,
    FaultKind::StreamCut,
    FaultKind::Auth,
    FaultKind::Network,
    FaultKind::NoServer,
    FaultKind::Overloaded,
    FaultKind::ContextOverflow,
    FaultKind::Malformed,
];

fn pick<T: Copy>(from: &[T], which: u8) -> Option<T> {
    (!from.is_empty()).then(|| from[usize::from(which) % from.len()])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_laws_hold_and_turns_end(
        policy in policy(),
        budgets in budgets(),
        acts in proptest::collection::vec(act(), 0..80),
    ) {
        let mut play = Play::new(SessionCreated { policy, budgets, ..plain() });
        for act in acts {
            play.act(act);
        }
        play.drive_to_the_end();
        prop_assert!(play.world.session.queue.is_empty());
        if play.world.session.life == Life::Open {
            let ended = play.command(Command::End { reason: None }, None);
            prop_assert!(ended);
        }
        play.laws.at_rest(&play.world);
    }
}
