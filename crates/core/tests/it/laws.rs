//! What holds in every log, checked event by event without asking the machine.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::{
    command::Verdict,
    context::{ChatMessage, Voice},
    event::{Body, CallOrigin, Event, RestoreOutcome, ToolCallStarted},
    ids::{CallId, MessageId, TurnId},
    policy::{PatchReview, RuleAction, Scope},
    session::{CallState, Effect, Life, Phase, Session},
    tool::{CallClass, Outcome, ToolCall, ToolKind, VerifySource},
};

use crate::{
    context::{reloaded, transcript},
    world::{World, call_name},
};

/// What is known of one call from the log alone.
struct Seen {
    turn: TurnId,
    name: String,
    kind: ToolKind,
    subject: String,
    runs: u32,
    may_run_again: bool,
    done: bool,
    answers: u32,
    granted: bool,
    /// The change that somebody looked at and said yes to.
    reviewed: Option<String>,
    /// The model that should look at it could not.
    given_up: bool,
    /// Its place among all calls of the log.
    place: usize,
}

pub struct Laws {
    /// The state before the event that is looked at.
    state: Session,
    looked_at: usize,
    open: Option<TurnId>,
    queued: BTreeSet<TurnId>,
    settled: BTreeSet<TurnId>,
    calls: BTreeMap<CallId, Seen>,
    /// Calls that were allowed beyond themselves: tool and subject.
    lasting: BTreeSet<(String, String)>,
    messages: BTreeSet<MessageId>,
    taken_in: BTreeSet<MessageId>,
    delivered: BTreeSet<MessageId>,
    last_output: u64,
    /// Turns that changed files, by the event that tells what.
    checkpoints: BTreeMap<TurnId, u64>,
    undone: BTreeSet<TurnId>,
    ended: bool,
}

impl Laws {
    pub fn new(first: &Event) -> Laws {
        Laws {
            state: Session::born(first).expect("a log begins with session_created"),
            looked_at: 1,
            open: None,
            queued: BTreeSet::new(),
            settled: BTreeSet::new(),
            calls: BTreeMap::new(),
            lasting: BTreeSet::new(),
            messages: BTreeSet::new(),
            taken_in: BTreeSet::new(),
            delivered: BTreeSet::new(),
            last_output: 0,
            checkpoints: BTreeMap::new(),
            undone: BTreeSet::new(),
            ended: false,
        }
    }

    /// Looks at what is new in the log, then at the state it folds to.
    pub fn watch(&mut self, world: &World) {
        while let Some(event) = world.events.get(self.looked_at) {
            self.event(event);
            self.state.apply(event);
            self.looked_at += 1;
        }
        self.nothing_hangs(&world.session);
        self.the_context_is_the_same_after_a_restart(world);
        self.nothing_is_lost(&world.session);
        self.budgets_hold(&world.session);
    }

    fn event(&mut self, event: &Event) {
        assert!(!self.ended, "nothing follows the end of a session: {}", event.body.wire_type());
        match &event.body {
            Body::TurnQueued(_) => assert!(self.queued.insert(event.turn_id.unwrap()), "a turn is queued once"),
            Body::TurnStarted(started) => {
                assert_eq!(self.open, None, "one turn at a time");
                assert_eq!(self.state.restoring, None, "no turn works while files are put back");
                self.open = event.turn_id;
                self.queued.remove(&event.turn_id.unwrap());
                self.taken_in.extend(started.messages.iter().map(|message| message.id));
            }
            Body::TurnCompleted(_) => {
                let steers = self.state.turn.as_ref().map(|turn| turn.steers.len());
                assert_eq!(steers, Some(0), "no turn is completed while a steer waits for an answer");
                self.settle(event.turn_id.unwrap());
            }
            Body::TurnFailed(_) | Body::TurnCanceled(_) | Body::TurnExpired(_) => {
                self.settle(event.turn_id.unwrap());
            }
            Body::MessageAdded(added) => assert!(self.messages.insert(added.message_id)),
            Body::MessageDelivered(delivered) => {
                assert!(self.delivered.insert(delivered.message_id), "a steer is delivered once");
                self.taken_in.insert(delivered.message_id);
            }
            Body::ModelOutputCompleted(output) => {
                assert_eq!(event.turn_id, self.open);
                assert!(!self.state.waits_for_compaction(), "the model speaks when the context is short enough");
                self.last_output = event.seq;
                assert!(self.calls.values().all(|call| call.done), "the model speaks when all calls are answered");
                for call in &output.tool_calls {
                    self.asked(call, event.turn_id.unwrap());
                }
            }
            Body::ApprovalRequested(request) => {
                if request.origin == CallOrigin::VerifyPolicy {
                    self.policy_call(request.tool_call_id, &request.name, &request.subject);
                }
                let call = self.calls.get_mut(&request.tool_call_id).expect("a known call");
                assert_eq!(call.answers, 0, "nobody is asked twice for a call");
                call.reviewed = request.proposed.as_ref().map(|proposed| proposed.digest.clone());
            }
            Body::ReviewStarted(started) => {
                let call = self.calls.get_mut(&started.tool_call_id).expect("a known call");
                assert!(!call.done && call.kind == ToolKind::Write, "what is reviewed is a change to come");
                call.reviewed = Some(started.proposed.digest.clone());
            }
            Body::ReviewCompleted(done) => {
                let call = self.calls.get_mut(&done.tool_call_id).expect("a known call");
                if done.verdict == Verdict::Deny {
                    call.reviewed = None;
                }
            }
            Body::ReviewFailed(failed) => {
                let call = self.calls.get_mut(&failed.tool_call_id).expect("a known call");
                if failed.is_given_up() {
                    call.reviewed = None;
                    call.given_up = true;
                }
            }
            Body::ApprovalGranted(granted) => {
                let call = self.calls.get_mut(&granted.tool_call_id).expect("a known call");
                (call.answers, call.granted) = (call.answers + 1, true);
                if granted.scope != Scope::Once || granted.name == "verify" {
                    self.lasting.insert((call.name.clone(), call.subject.clone()));
                }
            }
            Body::ApprovalDenied(denied) => self.answered(denied.tool_call_id),
            Body::ApprovalExpired(expired) => self.answered(expired.tool_call_id),
            Body::TurnInterrupted(cut) => {
                for classed in &cut.calls {
                    let call = self.calls.get_mut(&classed.tool_call_id).expect("a known call");
                    call.may_run_again = match call.kind {
                        ToolKind::Read => true,
                        ToolKind::Write => classed.class == CallClass::NotStarted,
                        ToolKind::Exec | ToolKind::Network => {
                            assert_eq!(classed.class, CallClass::Unknown, "nobody can class {:?}", call.kind);
                            false
                        }
                    };
                }
            }
            Body::ToolCallStarted(started) => {
                if started.origin == CallOrigin::VerifyPolicy {
                    let commands = started.input["commands"].as_array().expect("the commands");
                    let lines: Vec<&str> = commands.iter().filter_map(|line| line.as_str()).collect();
                    self.policy_call(started.tool_call_id, &started.name, &lines.join("\n"));
                }
                self.started(started.tool_call_id, started.run);
                self.was_reviewed(started);
            }
            Body::ToolCallCompleted(done) => {
                let call = self.calls.get_mut(&done.tool_call_id).expect("a known call");
                assert!(!call.done, "{} has one outcome", call_name(done.tool_call_id));
                call.done = true;
                match done.outcome {
                    Outcome::Finished | Outcome::Unknown | Outcome::Canceled => assert!(call.runs > 0),
                    Outcome::NotRun => assert!(!done.result.ok),
                }
            }
            Body::BudgetReached(reached) => {
                assert!(reached.reached.used >= reached.reached.limit, "a budget is reached when it is used up");
            }
            Body::CheckpointCreated(_) => {
                assert_eq!(event.turn_id, self.open, "a checkpoint comes before its turn's end");
                assert!(self.checkpoints.insert(event.turn_id.unwrap(), event.seq).is_none(), "and once");
            }
            Body::UndoRequested(undo) => {
                assert_eq!(
                    (self.open, &self.state.restoring),
                    (None, &None),
                    "files are put back when nothing else runs"
                );
                assert_eq!(
                    self.checkpoints.get(&undo.turn_id),
                    Some(&undo.checkpoint_seq),
                    "of a turn with a checkpoint"
                );
                assert!(!self.undone.contains(&undo.turn_id), "and only once");
            }
            Body::RestoreStarted(started) => {
                assert_eq!(self.state.restoring.as_ref().map(|one| one.turn), Some(started.turn_id));
            }
            Body::WorkspaceRestored(restored) => {
                assert_eq!(
                    self.state.restoring.as_ref().map(|one| one.turn),
                    Some(restored.turn_id),
                    "one end for each"
                );
                if restored.outcome == RestoreOutcome::Restored {
                    self.undone.insert(restored.turn_id);
                }
            }
            Body::SessionCompleted(_) | Body::SessionCanceled(_) | Body::SessionExpired(_) => {
                assert_eq!(self.state.restoring, None, "a session ends when its files are at rest");
                assert_eq!(self.open, None, "a session ends when no turn is open");
                assert!(self.queued.is_empty(), "a session ends when none waits");
                self.ended = true;
            }
            Body::CompactionStarted(started) => {
                let again = self.state.compaction.is_some();
                assert!(!again || started.blocking, "one that is under way only begins to be waited for");
            }
            Body::ContextCompacted(compacted) => {
                assert!(self.state.compaction.is_some(), "a summary that was asked for");
                assert!(compacted.tokens_after < compacted.tokens_before, "a context grows by no summary");
                assert!(compacted.context_from >= self.state.context_from, "what was left behind stays behind");
                let spoken = self.calls.values().all(|call| call.done);
                assert!(spoken || compacted.kept_from <= self.last_output, "an open call is shown");
            }
            Body::CompactionFailed(_) => assert!(self.state.compaction.is_some()),
            Body::SessionCreated(_)
            | Body::SessionUpdated(_)
            | Body::SessionForked(_)
            | Body::AttachmentAdded(_)
            | Body::SessionFailed(_)
            | Body::TurnResumed(_)
            | Body::CancelRequested(_)
            | Body::ContextSeeded(_)
            | Body::ToolsOffered(_)
            | Body::ModelAttemptFailed(_)
            | Body::BudgetRaised(_)
            | Body::ChildStarted(_)
            | Body::ChildWaiting(_)
            | Body::ChildSettled(_) => {}
            Body::EventLost(_) => panic!("nothing gets lost of itself"),
        }
    }

    fn settle(&mut self, turn: TurnId) {
        assert!(self.settled.insert(turn), "a turn is settled once");
        if self.open == Some(turn) {
            self.open = None;
        } else {
            assert!(self.queued.remove(&turn), "only open and queued turns are settled");
        }
        let left = self.calls.iter().find(|(_, call)| call.turn == turn && !call.done);
        assert!(left.is_none(), "a settled turn has an outcome for every call: {:?}", left.map(|(id, _)| id));
    }

    fn asked(&mut self, call: &ToolCall, turn: TurnId) {
        let (name, kind, subject) = (call.name.clone(), call.kind, call.subject.clone());
        let seen = Seen {
            turn,
            name,
            kind,
            subject,
            runs: 0,
            may_run_again: false,
            done: false,
            answers: 0,
            granted: false,
            reviewed: None,
            given_up: false,
            place: self.calls.len(),
        };
        self.calls.insert(call.id, seen);
    }

    fn policy_call(&mut self, id: CallId, name: &str, subject: &str) {
        if self.calls.contains_key(&id) {
            return;
        }
        let call = ToolCall {
            id,
            provider_id: None,
            name: name.into(),
            kind: ToolKind::Exec,
            input: serde_json::Value::Null,
            subject: subject.into(),
            secrets: vec![],
            problem: None,
        };
        self.asked(&call, self.open.expect("a turn is open"));
    }

    fn answered(&mut self, id: CallId) {
        let call = self.calls.get_mut(&id).expect("a known call");
        call.answers += 1;
        assert_eq!(call.answers, 1, "an approval is answered once");
    }

    fn was_reviewed(&self, started: &ToolCallStarted) {
        let call = &self.calls[&started.tool_call_id];
        if call.kind == ToolKind::Write && self.state.policy.patch_review != PatchReview::Off && started.run == 1 {
            let seen = call.reviewed == Some(started.intent.digest())
                || (call.given_up || call.reviewed.is_none()) && call.granted;
            let lasting = self.lasting.contains(&(call.name.clone(), call.subject.clone()));
            assert!(seen || lasting, "a change is made once somebody has looked at this very one");
        }
    }

    fn started(&mut self, id: CallId, run: u32) {
        let call = &self.calls[&id];
        assert_eq!(run, call.runs + 1, "runs are numbered");
        assert!(!call.done, "a call that has an outcome does not start");
        if run == 1 {
            assert!(call.granted || self.policy_allows(call), "{} starts only when it may", call_name(id));
        } else {
            assert!(call.may_run_again, "{} does not run again by itself", call_name(id));
        }
        let reads = |other: &Seen| other.kind == ToolKind::Read && call.kind == ToolKind::Read;
        let mut earlier = self.calls.values().filter(|other| other.place < call.place);
        assert!(earlier.all(|other| other.done || reads(other)), "only reads run side by side");
        let call = self.calls.get_mut(&id).expect("a known call");
        (call.runs, call.may_run_again) = (run, false);
    }

    fn policy_allows(&self, call: &Seen) -> bool {
        match self.state.policy.approval.judge(&call.name, call.kind, &call.subject) {
            RuleAction::Allow => true,
            RuleAction::Deny => false,
            RuleAction::Ask => {
                let trusted = self.state.verify_plan().is_some_and(|plan| {
                    matches!(plan.source, VerifySource::Config | VerifySource::Policy)
                        && plan.commands.join("\n") == call.subject
                });
                let lasting = self.lasting.contains(&(call.name.clone(), call.subject.clone()));
                lasting || (call.name == "verify" && trusted)
            }
        }
    }

    /// An open turn that goes on wants something or waits for a person.
    fn nothing_hangs(&self, session: &Session) {
        let Some(turn) = &session.turn else {
            assert!(session.queue.is_empty() || session.restoring.is_some(), "none waits when none is open");
            let beside = |effect: &Effect| is_compact(effect) || is_restore(effect);
            assert!(session.wanted().iter().all(beside), "only a summary or an undo is made when no turn is open");
            let restores = session.wanted().iter().filter(|effect| is_restore(effect)).count();
            assert_eq!(restores, usize::from(session.restoring.is_some()), "an undo under way goes on");
            return;
        };
        let waits = turn.calls.iter().any(|call| matches!(call.state, CallState::Waiting { .. }));
        match turn.phase {
            Phase::Going => assert!(waits || session.wanted().iter().any(is_work), "the turn hangs: {turn:?}"),
            Phase::Stopping(_) => {
                let wanted = session.wanted().iter().filter(|effect| !is_compact(effect)).count();
                assert_eq!(wanted, 1, "a turn that is stopped starts nothing");
            }
            Phase::Budget(_) | Phase::Interrupted => {}
        }
        assert_eq!(session.life, Life::Open, "a session ends when its turn is settled");
    }

    fn the_context_is_the_same_after_a_restart(&self, world: &World) {
        if world.session.context_from == 1 {
            return;
        }
        let (live, reloaded) = (transcript(world), reloaded(world));
        assert_eq!(live.entries(), reloaded.entries(), "the conversation");
        assert_eq!(live.shown_secrets(), reloaded.shown_secrets());
        assert_eq!(live.system(&world.session), reloaded.system(&world.session));
        let summaries = live.entries().iter().skip(1).filter(|entry| matches!(entry.voice, Voice::Summary { .. }));
        assert_eq!(summaries.count(), 0, "a summary only comes first");
    }

    /// A message was taken in, or waits where the next turn or request finds it.
    fn nothing_is_lost(&self, session: &Session) {
        let mut kept = self.taken_in.clone();
        kept.extend(session.unsent.iter().map(|message| message.id));
        kept.extend(session.queue.iter().flat_map(|queued| &queued.messages).map(|message| message.id));
        kept.extend(session.turn.iter().flat_map(|turn| &turn.steers).map(|message| message.id));
        // Those of a queued turn that was canceled are kept with it, for a retry.
        kept.extend(session.settled.iter().flat_map(|turn| &turn.messages).map(|message| message.id));
        let lost: Vec<_> = self.messages.difference(&kept).collect();
        assert!(lost.is_empty() || session.settled.len() >= tenure_core::session::SETTLED_MAX, "lost: {lost:?}");
    }

    fn budgets_hold(&self, session: &Session) {
        let Some(turn) = &session.turn else { return };
        let within = |limit: Option<u64>, used: u64| limit.is_none_or(|limit| used <= limit);
        assert!(within(session.budgets.max_steps, turn.spent.steps), "steps within the budget");
        assert!(within(session.budgets.max_tool_calls, turn.spent.tool_calls), "calls within the budget");
    }

    /// At the end: every call of the conversation has exactly one answer before the next word.
    pub fn at_rest(&self, world: &World) {
        let transcript = transcript(world);
        let mut unanswered: BTreeSet<CallId> = BTreeSet::new();
        for message in transcript.messages() {
            match message {
                ChatMessage::Assistant { calls, .. } => {
                    assert!(unanswered.is_empty(), "a call without an answer before the next word");
                    unanswered.extend(calls.iter().map(|call| call.id));
                }
                ChatMessage::Tool { call, .. } => assert!(unanswered.remove(call), "an answer to an open call"),
                ChatMessage::System { .. } | ChatMessage::User { .. } => {
                    assert!(unanswered.is_empty(), "nobody speaks between a call and its answer");
                }
            }
        }
        assert!(unanswered.is_empty(), "no call is left without an answer");
    }
}

fn is_work(effect: &Effect) -> bool {
    !matches!(effect, Effect::TimeUp { .. })
}

fn is_restore(effect: &Effect) -> bool {
    matches!(effect, Effect::PrepareRestore { .. } | Effect::RestoreWorkspace { .. })
}

fn is_compact(effect: &Effect) -> bool {
    matches!(effect, Effect::Compact { .. })
}
