//! Folds events into the state. It cannot fail, asks nothing and has no catch-all arm.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    budget::{Budgets, Spent},
    command::{KeyUse, Verdict},
    event::{
        ApprovalRequested, Body, CallOrigin, CompactionFailed, CompactionStarted, Event, MessageAdded,
        ModelAttemptFailed, ModelOutputCompleted, ReviewFailed, SessionCreated, SessionForked, ToolCallCompleted,
        ToolCallStarted, TurnInterrupted, TurnStarted, Verification,
    },
    ids::{CallId, TurnId},
    message::{Delivery, MessageRef},
    model::{Fault, FaultKind, MicroUsd, Usage},
    policy::{Policy, Scope},
    session::{
        ANSWERED_MAX, Answered, Attempts, Call, CallState, Compaction, GRANTS_MAX, KEY_KEPT_MS, KeyRecord, LastOutput,
        Life, Lost, Origin, Phase, QueuedTurn, Review, SETTLED_MAX, Seed, Session, Settings, SettledTurn, Stop, Turn,
        TurnStatus, Written, key_name,
    },
    time::Timestamp,
    tool::{CallClass, Outcome, ToolCall, ToolKind},
};

impl Session {
    /// The state after the first event of a log, or `None` if that is no `session_created`. A log whose beginning is
    /// lost has a session too, which nobody knows the settings of.
    pub fn born(event: &Event) -> Option<Session> {
        let (settings, policy, budgets) = match &event.body {
            Body::SessionCreated(created) => {
                let SessionCreated { settings, policy, budgets } = &**created;
                (settings.clone(), policy.clone(), budgets.clone())
            }
            Body::EventLost(_) if event.seq == 1 => (Settings::default(), Policy::strictest(), Budgets::default()),
            _ => return None,
        };
        let mut session = Session {
            id: event.session_id,
            seq: event.seq,
            created_at: event.ts,
            updated_at: event.ts,
            settings,
            policy,
            budgets,
            life: Life::Open,
            turn: None,
            queue: VecDeque::new(),
            unsent: Vec::new(),
            last_turn_id: None,
            settled: VecDeque::new(),
            grants: Vec::new(),
            denials: Vec::new(),
            answered: VecDeque::new(),
            seed: None,
            offered: None,
            bundle_due: true,
            context_from: event.seq,
            compaction: None,
            compacted_to: 0,
            total: Spent::default(),
            children: Vec::new(),
            attachments: Vec::new(),
            checkpoints: VecDeque::new(),
            restoring: None,
            forked_from: None,
            lost: None,
            keys: Arc::default(),
        };
        if let Body::EventLost(lost) = &event.body {
            Lost::add(&mut session.lost, event.seq, &lost.reason);
        }
        session.remember_key(event.key.as_ref(), event.ts);
        Some(session)
    }

    /// Takes in one event.
    pub fn apply(&mut self, event: &Event) {
        self.count_time(event);
        self.seq = event.seq;
        self.updated_at = event.ts;
        self.remember_key(event.key.as_ref(), event.ts);
        let (seq, at, turn) = (event.seq, event.ts, event.turn_id);
        match &event.body {
            Body::SessionCreated(created) => self.reset(&created.policy, &created.budgets),
            Body::AttachmentAdded(added) => self.attachments.push(added.attachment.clone()),
            Body::SessionUpdated(updated) => {
                if let Some(title) = &updated.title {
                    self.settings.title = Some(title.clone());
                }
                if let Some(policy) = &updated.policy {
                    self.policy = policy.clone();
                }
                if let Some(labels) = &updated.labels {
                    self.settings.labels = labels.clone();
                }
                self.go_elsewhere(updated.model.as_ref(), updated.workspace_path.as_ref());
            }
            Body::SessionForked(forked) => self.become_fork(forked),
            Body::SessionCompleted(_) => self.end(Life::Completed, seq),
            Body::SessionFailed(_) => self.end(Life::Failed, seq),
            Body::SessionCanceled(_) => self.end(Life::Canceled, seq),
            Body::SessionExpired(_) => self.end(Life::Expired, seq),
            Body::MessageAdded(added) => self.take_message(added, seq, turn),
            Body::MessageDelivered(delivered) => self.with_turn(|turn| {
                turn.steers.retain(|message| message.id != delivered.message_id);
                // The last reply is no longer the last word: the model is to answer this one.
                if let Some(last) = &mut turn.last_output {
                    last.is_final = false;
                }
            }),
            Body::TurnQueued(queued) => {
                self.unsent.retain(|message| !queued.messages.contains(message));
                if let Some(id) = turn {
                    let (messages, retry_of) = (queued.messages.clone(), queued.retry_of);
                    self.queue.push_back(QueuedTurn { id, messages, retry_of, queued_at: at });
                }
            }
            Body::TurnStarted(started) => self.start_turn(started, turn, seq, at),
            Body::TurnCompleted(_) => self.settle(turn, TurnStatus::Completed, seq),
            Body::TurnFailed(_) => self.settle(turn, TurnStatus::Failed, seq),
            Body::TurnCanceled(_) => self.settle(turn, TurnStatus::Cancelled, seq),
            Body::TurnExpired(_) => self.settle(turn, TurnStatus::Expired, seq),
            Body::TurnInterrupted(cut) => self.with_turn(|turn| turn.interrupt(cut)),
            Body::TurnResumed(resumed) => self.with_turn(|turn| {
                turn.phase = Phase::Going;
                turn.attempts.not_before = None;
                turn.auto_resumes = if resumed.automatic { turn.auto_resumes + 1 } else { 0 };
            }),
            Body::CancelRequested(request) => self.with_turn(|turn| {
                let (reason, end_session) = (request.reason.clone(), request.end_session);
                turn.phase = Phase::Stopping(Stop::Cancel { reason, end_session });
            }),
            Body::ContextSeeded(seeded) => {
                self.seed = Some(Seed { seq, digest: seeded.digest(), verify: seeded.verify.clone() });
                self.bundle_due &= seeded.bundle.is_none();
            }
            Body::ToolsOffered(offered) => self.offered = Some(offered.digest()),
            Body::CompactionStarted(started) => self.begin_compaction(started),
            Body::ContextCompacted(compacted) => {
                self.compaction = None;
                self.compacted_to = compacted.tokens_after;
                self.context_from = compacted.context_from;
                self.spent_now().pay_whole(&compacted.usage, compacted.cost_micro_usd);
            }
            Body::CompactionFailed(failed) => {
                let begun = failed.begun || failed.reason.kind.follows_a_beginning();
                self.spent_now().pay_failed(&failed.usage, failed.cost_micro_usd, begun);
                self.fail_compaction(failed, at);
            }
            Body::ModelOutputCompleted(output) => self.with_turn(|turn| turn.take_output(output, seq)),
            Body::ModelAttemptFailed(failed) => self.with_turn(|turn| turn.take_failure(failed, at)),
            Body::ToolCallStarted(started) => self.with_turn(|turn| turn.start_call(started)),
            Body::ToolCallCompleted(done) => self.with_turn(|turn| turn.end_call(done)),
            Body::ApprovalRequested(request) => self.with_turn(|turn| turn.ask(request)),
            Body::ApprovalGranted(granted) => {
                self.answer(granted.tool_call_id, Verdict::Approve, granted.scope, seq);
                self.with_call(granted.tool_call_id, |call| call.state = CallState::Cleared);
            }
            Body::ApprovalDenied(denied) => self.deny(denied.tool_call_id, denied.scope, seq),
            Body::ApprovalExpired(expired) => self.deny(expired.tool_call_id, Scope::Once, seq),
            Body::ReviewStarted(started) => self.with_call(started.tool_call_id, |call| {
                call.state = CallState::Reviewing { seq, attempts: Attempts::default() };
                call.review = Review::Shown { digest: started.proposed.digest.clone() };
            }),
            Body::ReviewCompleted(done) => {
                self.spent_now().pay_whole(&done.usage, done.cost_micro_usd);
                self.with_call(done.tool_call_id, |call| call.state = CallState::Cleared);
            }
            Body::ReviewFailed(failed) => {
                let begun = failed.begun || failed.reason.kind.follows_a_beginning();
                self.spent_now().pay_failed(&failed.usage, failed.cost_micro_usd, begun);
                self.with_call(failed.tool_call_id, |call| call.fail_review(failed, at));
            }
            Body::BudgetReached(reached) => {
                let attended = self.policy.approval.attended;
                self.with_turn(|turn| {
                    turn.phase = match attended {
                        true => Phase::Budget(reached.reached),
                        false => Phase::Stopping(Stop::Expire(reached.reached)),
                    };
                });
            }
            Body::BudgetRaised(raised) => {
                self.budgets = raised.budgets.clone();
                self.with_turn(|turn| {
                    if let Phase::Budget(_) = turn.phase {
                        turn.phase = Phase::Going;
                    }
                });
            }
            Body::ChildStarted(child) => self.children.push(child.child),
            Body::ChildWaiting(_) => {}
            Body::EventLost(lost) => Lost::add(&mut self.lost, seq, &lost.reason),
            Body::CheckpointCreated(checkpoint) => self.keep_checkpoint(checkpoint, turn, seq),
            Body::UndoRequested(undo) => self.begin_undo(undo, seq),
            Body::RestoreStarted(started) => self.begin_restore(started),
            Body::WorkspaceRestored(restored) => self.end_undo(restored),
            Body::ChildSettled(child) => {
                self.children.retain(|id| *id != child.child);
                match child.cost_micro_usd {
                    Some(cost) => self.total.micro_usd = self.total.micro_usd.saturating_add(cost),
                    None => self.total.unpriced = true,
                }
            }
        }
    }

    /// What belongs to the session that was copied stays there: its costs, its keys, its children, the answers that
    /// people gave in it and the questions that wait for one.
    fn become_fork(&mut self, forked: &SessionForked) {
        self.forked_from = Some(Origin { session_id: forked.from, seq: forked.at_seq });
        self.created_at = self.updated_at;
        self.life = Life::Open;
        if forked.title.is_some() {
            self.settings.title = forked.title.clone();
        }
        self.settings.labels = forked.labels.clone();
        self.settings.parent = None;
        self.go_elsewhere(forked.model.as_ref(), forked.workspace_path.as_ref());
        self.total = Spent::default();
        self.keys = Arc::default();
        self.children.clear();
        self.compaction = None;
        // It goes on over there; here the files tell whether the turn can still be taken back.
        self.restoring = None;
        self.grants.clear();
        self.answered.clear();
        self.with_turn(|turn| {
            turn.spent = Spent::default();
            for call in &mut turn.calls {
                if matches!(call.state, CallState::Waiting { .. } | CallState::Reviewing { .. } | CallState::Cleared) {
                    call.state = CallState::Asked;
                    call.review = Review::None;
                }
            }
        });
    }

    /// Another model or another folder, for the turns to come.
    fn go_elsewhere(&mut self, model: Option<&String>, workspace_path: Option<&String>) {
        if let Some(model) = model {
            self.settings.model.clone_from(model);
        }
        if let Some(path) = workspace_path.filter(|path| **path != self.settings.workspace_path) {
            self.settings.workspace_path.clone_from(path);
            self.bundle_due = true;
        }
    }

    /// Nothing is open when a session ends, unless its log lost the event that tells so.
    fn end(&mut self, life: Life, seq: u64) {
        self.life = life;
        self.compaction = None;
        self.restoring = None;
        while let Some(queued) = self.queue.front().map(|queued| queued.id) {
            self.settle(Some(queued), TurnStatus::Cancelled, seq);
        }
        if let Some(open) = self.turn.as_ref().map(|turn| turn.id) {
            self.settle(Some(open), TurnStatus::Failed, seq);
        }
    }

    fn reset(&mut self, policy: &Policy, budgets: &Budgets) {
        self.policy = policy.clone();
        self.budgets = budgets.clone();
    }

    /// Time counts while the turn is active: not while it waits for people alone, and not while the daemon was away.
    fn count_time(&mut self, event: &Event) {
        if let Some(turn) = &mut self.turn {
            if !is_cut(&event.body) {
                turn.spent.active_ms = turn.active_ms_at(event.ts);
            }
            turn.clock = event.ts.max(turn.clock);
        }
    }

    /// Keeps the answer of a keyed command, and forgets those whose time is over.
    pub(super) fn remember_key(&mut self, used: Option<&KeyUse>, at: Timestamp) {
        let Some(used) = used else { return };
        let keys = Arc::make_mut(&mut self.keys);
        keys.retain(|_, kept| kept.at.plus_ms(KEY_KEPT_MS) > at);
        let record = KeyRecord { digest: used.digest.clone(), answer: used.answer.clone(), at };
        keys.insert(key_name(&used.endpoint, &used.key), record);
    }

    /// One that is under way will do for whoever wants another.
    fn begin_compaction(&mut self, started: &CompactionStarted) {
        let CompactionStarted { trigger, blocking, tokens } = *started;
        match &mut self.compaction {
            Some(under_way) => {
                under_way.trigger = trigger;
                under_way.blocking |= blocking;
                under_way.tokens = tokens.or(under_way.tokens);
            }
            None => {
                let attempts = Attempts::default();
                self.compaction = Some(Compaction { trigger, blocking, tokens, attempts, overflows: 0 });
                self.with_turn(|turn| turn.compactions += 1);
            }
        }
    }

    fn fail_compaction(&mut self, failed: &CompactionFailed, at: Timestamp) {
        let Some(compaction) = &mut self.compaction else { return };
        if failed.retry_at.is_none() {
            self.compacted_to = compaction.tokens.unwrap_or(self.compacted_to);
            self.compaction = None;
            return;
        }
        compaction.attempts.made += 1;
        let came = Came::of(failed.begun, &failed.usage, ["", ""]);
        compaction.attempts.count(&failed.reason, came, failed.retry_at, at);
        compaction.overflows += u32::from(failed.reason.kind == FaultKind::ContextOverflow);
    }

    /// The first message that no request has taken in yet.
    pub(super) fn first_needed(&self) -> Option<u64> {
        let queued = self.queue.iter().flat_map(|queued| &queued.messages);
        let steers = self.turn.iter().flat_map(|turn| &turn.steers);
        self.unsent.iter().chain(queued).chain(steers).map(|message| message.seq).min()
    }

    /// Where what is used now, outside of the turn's own steps, is counted.
    fn spent_now(&mut self) -> &mut Spent {
        self.turn.as_mut().map_or(&mut self.total, |turn| &mut turn.spent)
    }

    fn with_turn(&mut self, change: impl FnOnce(&mut Turn)) {
        if let Some(turn) = &mut self.turn {
            change(turn);
        }
    }

    fn with_call(&mut self, id: CallId, change: impl FnOnce(&mut Call)) {
        self.with_turn(|turn| turn.with_call(id, change));
    }

    fn take_message(&mut self, added: &MessageAdded, seq: u64, turn: Option<TurnId>) {
        let message = MessageRef { id: added.message_id, seq };
        let open = self.turn.as_mut().filter(|open| Some(open.id) == turn);
        match (added.delivery, open) {
            (Delivery::Steer, Some(open)) => open.steers.push(message),
            _ if !added.auto_run => self.unsent.push(message),
            // The turn that follows in the same decision takes it in.
            _ => {}
        }
    }

    fn start_turn(&mut self, started: &TurnStarted, id: Option<TurnId>, seq: u64, at: Timestamp) {
        let Some(id) = id else { return };
        self.queue.retain(|queued| queued.id != id);
        self.unsent.retain(|message| !started.messages.contains(message));
        self.last_turn_id = Some(id);
        self.turn = Some(Turn {
            id,
            messages: started.messages.clone(),
            retry_of: started.retry_of,
            model: started.model.clone(),
            started_at: at,
            started_seq: seq,
            phase: Phase::Going,
            step: 0,
            last_output: None,
            calls: Vec::new(),
            attempts: Attempts::default(),
            steers: Vec::new(),
            spent: Spent::default(),
            clock: at,
            dirty: false,
            verification: Verification::NotNeeded,
            verify_failures: 0,
            auto_resumes: 0,
            compactions: 0,
            too_long: None,
            written: Written::default(),
        });
    }

    fn settle(&mut self, id: Option<TurnId>, status: TurnStatus, seq: u64) {
        let Some(id) = id else { return };
        let messages = if self.turn.as_ref().is_some_and(|turn| turn.id == id) {
            let Some(turn) = self.turn.take() else { return };
            self.bundle_due = false;
            self.total.add(&turn.spent);
            // A steering message that no request took in is not lost: the next turn takes it.
            let next = self.queue.front_mut().map_or(&mut self.unsent, |queued| &mut queued.messages);
            next.extend(turn.steers);
            next.sort_by_key(|message| message.seq);
            turn.messages
        } else if let Some(index) = self.queue.iter().position(|queued| queued.id == id) {
            self.queue.remove(index).map(|queued| queued.messages).unwrap_or_default()
        } else {
            return;
        };
        push_bounded(&mut self.settled, SettledTurn { id, status, messages, seq }, SETTLED_MAX);
    }

    fn answer(&mut self, call: CallId, verdict: Verdict, scope: Scope, seq: u64) {
        push_bounded(&mut self.answered, Answered { call, verdict, scope, seq }, ANSWERED_MAX);
        let Some(known) = self.turn.as_ref().and_then(|turn| turn.call(call)) else { return };
        let named = (known.call.name.clone(), known.call.subject.clone());
        // Verification commands are asked for once per session and exact text.
        let lasting = scope != Scope::Once || (known.call.name == "verify" && verdict == Verdict::Approve);
        if lasting {
            let list = if verdict == Verdict::Approve { &mut self.grants } else { &mut self.denials };
            if !list.contains(&named) {
                list.truncate(GRANTS_MAX - 1);
                list.insert(0, named);
            }
        }
    }

    fn deny(&mut self, call: CallId, scope: Scope, seq: u64) {
        self.answer(call, Verdict::Deny, scope, seq);
        self.with_turn(|turn| {
            if turn.call(call).is_some_and(|call| call.origin == CallOrigin::VerifyPolicy) {
                turn.verification = Verification::Denied;
            }
        });
    }
}

impl Attempts {
    fn count(&mut self, reason: &Fault, came: Came, retry_at: Option<Timestamp>, at: Timestamp) {
        self.not_before = retry_at;
        // One that was stopped by us tells nothing of the model, but that it was there if it had begun to answer.
        let by_us = matches!(reason.kind, FaultKind::Interrupted | FaultKind::Canceled);
        self.reached |= came == Came::Something || (!by_us && reason.kind != FaultKind::NoServer);
        if !by_us {
            self.failed += 1;
            self.first_failed_at.get_or_insert(at);
        }
    }
}

/// Whether anything of a reply had come when it was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Nothing,
    Something,
}

impl Came {
    /// What was counted or shown was also sent.
    fn of(begun: bool, usage: &Usage, shown: [&str; 2]) -> Self {
        match begun || *usage != Usage::default() || shown.iter().any(|text| !text.is_empty()) {
            true => Came::Something,
            false => Came::Nothing,
        }
    }
}

/// Whether an event tells of a time in which nothing ran.
fn is_cut(body: &Body) -> bool {
    match body {
        Body::TurnInterrupted(_) => true,
        Body::ModelAttemptFailed(failed) => failed.reason.kind == FaultKind::Interrupted,
        Body::CompactionFailed(failed) => failed.reason.kind == FaultKind::Interrupted,
        Body::ReviewFailed(failed) => failed.reason.kind == FaultKind::Interrupted,
        _ => false,
    }
}

fn push_bounded<T>(list: &mut VecDeque<T>, item: T, max: usize) {
    if list.len() >= max {
        list.pop_front();
    }
    list.push_back(item);
}

impl Spent {
    pub fn add(&mut self, other: &Spent) {
        self.steps = self.steps.saturating_add(other.steps);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.active_ms = self.active_ms.saturating_add(other.active_ms);
        self.usage.add(&other.usage);
        self.micro_usd = self.micro_usd.saturating_add(other.micro_usd);
        self.unpriced |= other.unpriced;
    }

    fn pay(&mut self, usage: &Usage, cost: Option<MicroUsd>) {
        self.usage.add(usage);
        match cost {
            Some(cost) => self.micro_usd = self.micro_usd.saturating_add(cost),
            None => self.unpriced |= *usage != Usage::default(),
        }
    }

    /// A whole reply without a price is of unknown cost, also where the vendor counted no tokens.
    fn pay_whole(&mut self, usage: &Usage, cost: Option<MicroUsd>) {
        self.pay(usage, cost);
        self.unpriced |= cost.is_none();
    }

    /// A call that failed after its reply had begun has used what was told, and what else nobody knows; only where a
    /// model is free that is nothing.
    fn pay_failed(&mut self, usage: &Usage, cost: Option<MicroUsd>, begun: bool) {
        self.pay(usage, cost);
        self.unpriced |= begun && cost != Some(0);
    }
}

impl Call {
    fn fail_review(&mut self, failed: &ReviewFailed, at: Timestamp) {
        let CallState::Reviewing { attempts, .. } = &mut self.state else { return };
        attempts.made = failed.attempt;
        let came = Came::of(failed.begun, &failed.usage, ["", ""]);
        attempts.count(&failed.reason, came, failed.retry_at, at);
        if failed.is_given_up() {
            // It is prepared once more, and shown to a person.
            self.state = CallState::Cleared;
            self.review = Review::GivenUp;
        }
    }
}

impl Turn {
    fn with_call(&mut self, id: CallId, change: impl FnOnce(&mut Call)) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.call.id == id) {
            change(call);
        }
    }

    fn take_output(&mut self, output: &ModelOutputCompleted, seq: u64) {
        self.step = output.step;
        self.attempts = Attempts { reached: true, ..Attempts::default() };
        self.compactions = 0;
        self.too_long = None;
        self.auto_resumes = 0;
        self.spent.steps += 1;
        self.spent.pay_whole(&output.usage, output.cost_micro_usd);
        let is_final = output.tool_calls.is_empty();
        self.last_output = Some(LastOutput { message_id: output.message_id, seq, is_final });
        self.calls = output.tool_calls.iter().map(|call| Call::asked(call.clone(), CallOrigin::Model)).collect();
    }

    fn take_failure(&mut self, failed: &ModelAttemptFailed, at: Timestamp) {
        self.attempts.made = failed.attempt;
        if failed.reason.kind == FaultKind::ContextOverflow {
            self.too_long = Some(failed.reason.message.clone());
        }
        let begun = failed.begun || failed.reason.kind.follows_a_beginning();
        self.spent.pay_failed(&failed.usage, failed.cost_micro_usd, begun);
        let came = Came::of(failed.begun, &failed.usage, [&failed.text, &failed.thinking]);
        self.attempts.count(&failed.reason, came, failed.retry_at, at);
    }

    /// The policy's own call enters with its first event; the model's calls are there already.
    fn know_call(&mut self, call: ToolCall, origin: CallOrigin) {
        if origin == CallOrigin::VerifyPolicy && self.call(call.id).is_none() {
            self.calls.push(Call::asked(call, origin));
            // A new verification is judged by its own end, not by an earlier one's.
            self.verification = Verification::NotNeeded;
        }
    }

    fn ask(&mut self, request: &ApprovalRequested) {
        let call = ToolCall {
            id: request.tool_call_id,
            provider_id: None,
            name: request.name.clone(),
            kind: request.kind,
            input: request.input.clone(),
            subject: request.subject.clone(),
            secrets: vec![],
            problem: None,
        };
        self.know_call(call, request.origin);
        self.with_call(request.tool_call_id, |call| {
            call.state = CallState::Waiting { expires_at: request.expires_at };
            if let Some(proposed) = &request.proposed {
                call.review = Review::Shown { digest: proposed.digest.clone() };
            }
        });
    }

    fn start_call(&mut self, started: &ToolCallStarted) {
        let call = ToolCall {
            id: started.tool_call_id,
            provider_id: None,
            name: started.name.clone(),
            kind: started.kind,
            input: started.input.clone(),
            subject: String::new(),
            secrets: vec![],
            problem: None,
        };
        self.know_call(call, started.origin);
        if started.run == 1 {
            self.spent.tool_calls += 1;
        }
        self.written.commands |= started.kind != ToolKind::Read && started.intent.is_empty();
        self.with_call(started.tool_call_id, |call| {
            call.state = CallState::Started { intent: started.intent.clone() };
            call.runs = started.run;
        });
    }

    fn end_call(&mut self, done: &ToolCallCompleted) {
        let ok = done.result.ok;
        let kind = self.call(done.tool_call_id).map(|call| call.call.kind);
        if let Some(call) = self.calls.iter().find(|call| call.call.id == done.tool_call_id) {
            self.written.take_end(call, done);
        }
        self.with_call(done.tool_call_id, |call| call.state = CallState::Done { ok });
        if done.outcome == Outcome::Finished {
            self.auto_resumes = 0;
        }
        let changed = match done.outcome {
            Outcome::Finished => ok,
            Outcome::Unknown | Outcome::Canceled => true,
            Outcome::NotRun => false,
        };
        self.dirty |= changed && kind == Some(ToolKind::Write);
        if done.name == "verify" && done.outcome == Outcome::Finished {
            match ok {
                true => {
                    self.dirty = false;
                    self.verification = Verification::Passed;
                }
                false if done.origin == CallOrigin::VerifyPolicy => self.verify_failures += 1,
                false => {}
            }
        }
    }

    fn interrupt(&mut self, cut: &TurnInterrupted) {
        self.spent.active_ms = self.spent.active_ms.saturating_add(cut.active_ms);
        self.phase = Phase::Interrupted;
        for classed in &cut.calls {
            if let Some(call) = self.calls.iter().find(|call| call.call.id == classed.tool_call_id)
                && classed.class == CallClass::Unknown
            {
                self.written.take_unknown(call);
            }
            self.with_call(classed.tool_call_id, |call| {
                call.state = match (classed.class, call.call.kind) {
                    // Nothing happened, or running it twice does no harm: it starts again.
                    (CallClass::NotStarted, _) | (CallClass::Unknown, ToolKind::Read) => CallState::Cleared,
                    (CallClass::Unknown, ToolKind::Write | ToolKind::Exec | ToolKind::Network) => CallState::Unknown,
                    // Its outcome follows in the same decision.
                    (CallClass::Finished, _) => call.state.clone(),
                };
            });
        }
    }
}
