//! Compares what is wanted with what runs: starts what is missing, stops what is surplus.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use tenure_core::{
    command::{FailedRestore, Input, ModelOutput, Partial},
    context::{ChatMessage, ModelRequest, Purpose, RequestMeta, Transcript},
    event::CompactTrigger,
    ids::{CallId, TurnId},
    message::Part,
    model::{Fault, FaultKind, MicroUsd, Usage},
    redact::marks_in,
    session::{CallState, Effect},
    tool::{Intent, Outcome, ToolResult},
};
use tenure_models::{Model, tokens::Gauge};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Brake, Done, NEWS_MAX, News, Shower, Warm,
    brake::{TIME_UP, time_up_fault},
    offering::Offered,
};
use crate::{
    Error, Reading,
    compact::{Compacting, Plan, Room},
    load,
    model_call::{Bill, ModelCall},
    tool_call::{CallOfTool, Prepared},
    undo::whole,
};

/// How long stopped work is waited for; tools give up and name what is left before that.
pub(super) const STOP_PATIENCE: Duration = Duration::from_secs(tenure_tools::STOP_LIMIT.as_secs() + 2);

const NOTHING_TO_COMPACT: &str =
    "there is nothing to compact: what could be left out is no longer than a summary of it would be";

impl Warm {
    /// Brings what runs in line with what the state wants.
    pub(super) async fn reconcile(&mut self) {
        // Work that a stop of the daemon has ended must not be started once more by the same daemon.
        if self.shared.stop.is_cancelled() || (!self.recovered && !self.recover().await) {
            return;
        }
        loop {
            if self.lost.is_some() || !self.held.is_empty() || self.disk_retry_at().is_some() {
                return;
            }
            let wanted = self.state.wanted();
            for (effect, brake) in &self.running {
                if !wanted.contains(effect) {
                    brake.token.cancel();
                }
            }
            self.wake = None;
            let mut changed = false;
            for effect in wanted {
                if !self.running.contains_key(&effect) {
                    changed |= self.start(effect).await;
                }
                if changed {
                    break;
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Starts one effect; tells whether the state has changed by it.
    async fn start(&mut self, effect: Effect) -> bool {
        let now = self.shared.parts.clock.now();
        match effect {
            Effect::CallModel { not_before: Some(at), .. } if at > now => self.wake_by(at),
            Effect::Compact { not_before: Some(at), .. }
            | Effect::ReviewChange { not_before: Some(at), .. }
            | Effect::Wake { at, .. }
            | Effect::TimeUp { at, .. }
                if at > now =>
            {
                self.wake_by(at)
            }
            Effect::Compact { attempt, .. } => self.start_compaction(effect, attempt).await,
            Effect::CallModel { turn, step, attempt, .. } => self.start_model(effect, turn, step, attempt).await,
            Effect::ReviewChange { turn, call, attempt, .. } => self.start_review(effect, turn, call, attempt).await,
            Effect::PrepareTool { turn, call } => self.start_tool(effect, turn, call, None),
            Effect::RunTool { turn, call, run } => self.start_tool(effect, turn, call, Some(run)),
            Effect::TimeUp { turn, .. } => self.time_up(turn).await,
            Effect::Wake { call, .. } => self.tell(Input::Woke { call }).await,
            Effect::ReportGone { turn } => self.report_gone(turn).await,
            Effect::PrepareRestore { undo } | Effect::RestoreWorkspace { undo } => {
                self.start_restore(effect, undo).await
            }
        }
    }

    fn wake_by(&mut self, at: tenure_core::time::Timestamp) -> bool {
        self.wake = Some(self.wake.map_or(at, |earlier| earlier.min(at)));
        false
    }

    /// Commits an input of our own; tells whether the state has changed.
    pub(super) async fn tell(&mut self, input: Input) -> bool {
        let before = self.state.seq;
        match self.commit(input).await {
            Ok(_) => {}
            Err(Error::Refused(refusal)) => tracing::debug!("session {}: {refusal}", self.id),
            Err(error) => self.disk_refused(&error),
        }
        self.state.seq != before
    }

    /// What runs tells its end, and that ends the step; where nothing runs it ends here.
    async fn time_up(&mut self, turn: TurnId) -> bool {
        let of_turn = self.running.iter().filter(|(effect, _)| turn_of(effect) == Some(turn));
        match of_turn.map(|(_, brake)| brake.time_up()).count() {
            0 => self.tell(Input::TimeUp { turn }).await,
            _ => false,
        }
    }

    async fn report_gone(&mut self, turn: TurnId) -> bool {
        let since = *self.stopping_since.get_or_insert_with(Instant::now);
        let stuck: Vec<Effect> = self.running.keys().copied().filter(|effect| turn_of(effect) == Some(turn)).collect();
        if !stuck.is_empty() && since.elapsed() < STOP_PATIENCE {
            return false;
        }
        let mut left = self.left.clone();
        left.extend(stuck.iter().map(|effect| self.name_of(effect)));
        let cut = match self.state.waits_for_compaction() {
            true => self.summary_bill.as_ref().map(Bill::so_far),
            false => self.cut_model.as_ref().map(|cut| {
                let Partial { text, thinking, .. } = self.shown.so_far();
                Partial { text, thinking, ..cut.clone() }
            }),
        };
        let mut took = self.took.clone();
        took.extend(self.running.iter().filter_map(|(effect, brake)| Some((call_of(effect)?, brake.ran_ms()))));
        self.tell(Input::WorkGone { turn, left, took, cut }).await
    }

    /// What a request costs whose count was never told: nothing with a free model, else nobody knows.
    pub(super) fn untold(&self) -> Option<MicroUsd> {
        let model = self.shared.parts.models.resolve(&self.state.settings.model).ok()?;
        model.cost(&Usage::default())
    }

    /// How people are told of work that did not end.
    fn name_of(&self, effect: &Effect) -> String {
        match effect {
            Effect::RunTool { call, .. } | Effect::PrepareTool { call, .. } => {
                let known = self.state.turn.as_ref().and_then(|turn| turn.call(*call));
                format!("{} ({call})", known.map_or("a tool", |known| known.call.name.as_str()))
            }
            Effect::CallModel { .. }
            | Effect::Compact { .. }
            | Effect::ReviewChange { .. }
            | Effect::TimeUp { .. }
            | Effect::Wake { .. }
            | Effect::ReportGone { .. }
            | Effect::PrepareRestore { .. }
            | Effect::RestoreWorkspace { .. } => "a model call".to_owned(),
        }
    }

    async fn start_model(&mut self, effect: Effect, turn: TurnId, step: u32, attempt: u32) -> bool {
        if self.seeded_for != Some(turn) {
            let plan = self.bundle_plan().filter(|_| self.shared.parts.config.reading == Reading::Beside);
            if let Some(plan) = plan {
                self.seeded_for = Some(turn);
                self.look_beside(effect, plan).await;
                return false;
            }
            let seed = self.look_around().await;
            let differs = self.state.seed_differs(&seed);
            if differs && !self.tell(Input::ContextFound(seed)).await {
                return false;
            }
            self.seeded_for = Some(turn);
        }
        if self.offer_tools(effect, turn, step).await == Offered::NotYet {
            return false;
        }
        match self.model_call(turn, step, attempt).await {
            Ok((call, token)) => {
                // Where the disk did not take the decision, it is made again when it does.
                if self.measure(turn, &call).await || self.disk_retry_at().is_some() {
                    return true;
                }
                let (brake, bill) = (self.brake(effect, token.clone()), call.bill.clone());
                self.bill = Some(bill.clone());
                self.run_beside(effect, &brake.clone(), async move {
                    let input = tokio::select! {
                        biased;
                        outcome = call.run() => Some(model_input(turn, step, attempt, outcome, &bill)),
                        () = token.cancelled() => brake.is_time_up().then(|| {
                            let (fault, partial) = (time_up_fault(), bill.so_far());
                            Input::ModelFailed { turn, step, attempt, fault, partial }
                        }),
                    };
                    (input, Vec::new())
                });
                false
            }
            Err(fault) => {
                let partial = Partial::default();
                self.tell(Input::ModelFailed { turn, step, attempt, fault, partial }).await
            }
        }
    }

    async fn model_call(
        &mut self,
        turn: TurnId,
        step: u32,
        attempt: u32,
    ) -> Result<(ModelCall, CancellationToken), Fault> {
        self.need_transcript().await?;
        let parts = &self.shared.parts;
        let tools = self.toolset();
        let request = self.transcript.as_ref().and_then(|transcript| transcript.request(&self.state, tools.specs()));
        let bug = || Fault::new(FaultKind::BadRequest, format!("no request could be made for {turn}"));
        let mut request = request.ok_or_else(bug)?;
        let model = parts.models.resolve(&request.model)?;
        tell_unseen(&mut request, &*model);
        if model.window().is_some() {
            self.seed_gauge(&mut request, &*model);
        }
        let shown_secrets = self.shown_secrets();
        let shower = Shower { news: self.news_sender(), turn, step, attempt };
        let parts = &self.shared.parts;
        let guessed_tokens = if model.window().is_some() { model.count(&request) } else { 0 };
        let call = ModelCall {
            bill: Bill::new(model.clone()),
            model,
            guessed_tokens,
            store: parts.store.clone(),
            attachments: self.state.attachments.clone(),
            request,
            secrets: parts.secrets.clone(),
            tools,
            verify: self.state.verify_plan(),
            shown_secrets,
            moment: parts.clock.moment(),
            shower,
        };
        Ok((call, self.shared.stop.child_token()))
    }

    /// The conversation, with all that it speaks of.
    pub(super) async fn need_transcript(&mut self) -> Result<(), Fault> {
        let unread = |error: Error| Fault::new(FaultKind::Server, error.to_string());
        let store = self.shared.parts.store.clone();
        let mut transcript = match self.transcript.take() {
            Some(transcript) => transcript,
            None => load::transcript(&*store, &self.state).await.map_err(unread)?,
        };
        load::supply(&*store, &self.state, &mut transcript).await.map_err(unread)?;
        self.transcript = Some(transcript);
        Ok(())
    }

    /// A gauge is of one model. A session that comes back begins with what the vendor counted last, as far as its log was
    /// read anyway.
    fn seed_gauge(&mut self, request: &mut ModelRequest, model: &dyn Model) {
        if self.gauged != request.model {
            self.gauge = Gauge::default();
            self.gauged.clone_from(&request.model);
        }
        let counted = self.transcript.as_ref().and_then(Transcript::counted).filter(|_| self.gauge.is_new());
        let Some(counted) = counted.filter(|counted| counted.model == request.model) else { return };
        let since = request.messages.split_off(counted.messages.min(request.messages.len()));
        let guessed = model.count(request);
        if let Some(guessed) = model.recount(request, guessed) {
            self.gauge.set(guessed, counted.tokens);
        }
        request.messages.extend(since);
    }

    /// Tells the core how full the window is, where that is worth a thought; tells whether that changed the state.
    async fn measure(&mut self, turn: TurnId, call: &ModelCall) -> bool {
        let Some(window) = call.model.window() else { return false };
        let tokens = self.gauge.read(call.guessed_tokens);
        let from = u64::from(self.state.policy.compaction.from_percent);
        tokens.saturating_mul(100) >= window.saturating_mul(from)
            && self.tell(Input::ContextMeasured { turn, tokens, window }).await
    }

    async fn start_compaction(&mut self, effect: Effect, attempt: u32) -> bool {
        match self.compacting(attempt).await {
            Ok(work) => {
                let token = self.shared.stop.child_token();
                let brake = self.brake(effect, token.clone());
                self.summary_bill = Some(work.bill.clone());
                self.run_beside(effect, &brake.clone(), async move {
                    let input = tokio::select! {
                        biased;
                        input = work.run() => Some(input),
                        () = token.cancelled() => None,
                    };
                    (input, Vec::new())
                });
                false
            }
            Err(fault) => self.tell(Input::CompactFailed { attempt, fault, partial: Partial::default() }).await,
        }
    }

    async fn compacting(&mut self, attempt: u32) -> Result<Compacting, Fault> {
        self.need_transcript().await?;
        let name = self.state.turn.as_ref().map_or(&self.state.settings.model, |turn| &turn.model).clone();
        let model = self.shared.parts.models.resolve(&name)?;
        let nothing = || Fault::new(FaultKind::BadRequest, NOTHING_TO_COMPACT);
        let transcript = self.transcript.as_ref().ok_or_else(nothing)?;
        let turn_id = self.state.turn.as_ref().map(|turn| turn.id).or(self.state.last_turn_id).ok_or_else(nothing)?;
        let meta = RequestMeta { session_id: self.id, turn_id, step: 0, attempt, purpose: Purpose::Summary };
        let mut request = ModelRequest {
            model: name,
            system: transcript.system(&self.state),
            messages: transcript.entries().iter().map(|entry| entry.message.clone()).collect(),
            tools: self.toolset().specs(),
            files: BTreeMap::new(),
            output_schema: None,
            meta,
        };
        self.seed_gauge(&mut request, &*model);
        request.messages.clear();
        let under_way = self.state.compaction.as_ref();
        let (trigger, overflows) =
            under_way.map_or((CompactTrigger::Asked, 0), |under_way| (under_way.trigger, under_way.overflows));
        let overhead = self.gauge.read(model.count(&request));
        let room = Room { overhead, window: model.window(), overflows, gauge: self.gauge };
        let entries = self.transcript.as_ref().map_or(&[][..], Transcript::entries);
        let plan = Plan::make(entries, &*model, &room).ok_or_else(nothing)?;
        (request.system, request.messages, request.tools) = (Plan::system(), plan.messages(), Arc::from([]));
        let (secrets, shown_secrets) = (self.shared.parts.secrets.clone(), self.shown_secrets());
        let bill = Bill::new(model.clone());
        Ok(Compacting { attempt, trigger, model, request, plan, gauge: self.gauge, secrets, shown_secrets, bill })
    }

    /// Secrets that the model was shown by a person or by a result, and so may name.
    fn shown_secrets(&self) -> BTreeSet<String> {
        let mut shown = self.transcript.as_ref().map(|known| known.shown_secrets()).unwrap_or_default();
        shown.extend(self.state.settings.system_prompt.iter().flat_map(|text| marks_in(text)).map(str::to_owned));
        shown
    }

    fn start_tool(&mut self, effect: Effect, turn: TurnId, id: CallId, run: Option<u32>) -> bool {
        let Some(open) = &self.state.turn else { return false };
        let (Some(call), step) = (open.call(id).cloned(), open.step) else { return false };
        let token = self.shared.stop.child_token();
        let shower = Shower { news: self.news_sender(), turn, step, attempt: run.unwrap_or(1) };
        let parts = &self.shared.parts;
        let tool = CallOfTool {
            tools: parts.tools.clone(),
            foreign: parts.foreign.clone(),
            store: parts.store.clone(),
            put_back: parts.secrets.only(&call.call.secrets),
            secrets: parts.secrets.clone(),
            session: self.id,
            turn,
            call: id,
            name: call.call.name.clone(),
            input: call.call.input.clone(),
            subject: call.call.subject.clone(),
            workspace: PathBuf::from(&self.state.settings.workspace_path),
            verify: self.state.plan_of(&call),
            require_clean: self.state.policy.verify.require_clean,
            patch_review: self.state.policy.patch_review,
            cancel: token.clone(),
            shower,
        };
        let intent = match call.state {
            CallState::Started { intent } => intent,
            _ => Intent::default(),
        };
        let brake = self.brake(effect, token.clone());
        match run {
            None => self.run_beside(effect, &brake.clone(), async move {
                // Nothing outside was changed yet, so it can be left where it stands.
                let input = tokio::select! {
                    biased;
                    prepared = tool.prepare() => Some(prepared_input(turn, id, prepared)),
                    () = token.cancelled() => None,
                };
                (input, Vec::new())
            }),
            Some(run) => {
                self.run_beside(effect, &brake.clone(), async move {
                    let mut invoked = tool.run(intent).await;
                    // A call that was stopped has no result of its own; one that came to its end in that instant has.
                    let stopped = token.is_cancelled() && !invoked.result.ok;
                    let outcome = if stopped { Outcome::Canceled } else { Outcome::Finished };
                    if stopped && brake.is_time_up() {
                        let why = format!("stopped: {TIME_UP}; it may have taken effect in part");
                        invoked.result.parts.push(Part::text(why.clone()));
                        invoked.result.error = Some(why);
                    }
                    let (result, duration_ms) = (invoked.result, brake.ran_ms());
                    let done = Input::ToolDone { turn, call: id, run, outcome, result, duration_ms };
                    ((!stopped || brake.is_time_up()).then_some(done), invoked.left)
                });
            }
        }
        false
    }

    /// The effect counts as running from now on.
    pub(super) fn brake(&mut self, effect: Effect, token: CancellationToken) -> Brake {
        let brake = Brake::new(token);
        self.running.insert(effect, brake.clone());
        brake
    }

    fn news_sender(&mut self) -> mpsc::Sender<News> {
        self.news.get_or_insert_with(|| mpsc::channel(NEWS_MAX)).0.clone()
    }

    /// Runs an effect beside the session; its last word always comes, even when it panics.
    pub(super) fn run_beside(
        &mut self,
        effect: Effect,
        brake: &Brake,
        work: impl Future<Output = (Option<Input>, Vec<String>)> + Send + 'static,
    ) {
        let (news, brake) = (self.news_sender(), brake.clone());
        // A stop of the daemon waits for the session, and the session for its work, but not for ever.
        tokio::spawn(async move {
            let (input, left) = match brake.token.is_cancelled() && !brake.is_time_up() {
                // It was stopped before it could begin: whoever was told so may rely on it.
                true => (None, Vec::new()),
                false => match AssertUnwindSafe(work).catch_unwind().await {
                    Ok(done) => done,
                    Err(_) => (broken(effect), Vec::new()),
                },
            };
            let _ = news.send(News::Done(Box::new(Done { effect, input, left }))).await;
        });
    }

    /// Takes in an effect's last word. It counts as running until that is on disk.
    pub(super) async fn finish(&mut self, done: Done) -> Result<(), (News, Error)> {
        let Done { effect, input, left } = done;
        if let Some(input) = &input
            && let Err(error) = self.tell_end(input.clone()).await
        {
            return Err((News::Done(Box::new(Done { effect, input: Some(input.clone()), left })), error));
        }
        let brake = self.running.remove(&effect);
        if input.is_some() && matches!(effect, Effect::Compact { .. }) {
            // It was told.
            self.summary_bill = None;
        }
        if turn_of(&effect) == self.state.turn.as_ref().map(|turn| turn.id) {
            self.left.extend(left);
            if let (None, Some(call), Some(brake)) = (&input, call_of(&effect), brake) {
                self.took.push((call, brake.ran_ms()));
            }
            // A look around before the call was no call yet.
            let asks = matches!(effect, Effect::CallModel { .. } | Effect::ReviewChange { .. });
            if let (None, true, Some(bill)) = (&input, asks, &self.bill) {
                self.cut_model.get_or_insert_with(|| bill.so_far());
            }
        }
        Ok(())
    }

    /// The vendor's own count corrects the next guess.
    fn calibrate(&mut self, output: &ModelOutput) {
        self.gauge.set(output.guessed_tokens, output.usage.sent());
    }

    /// Commits the end of an effect. One that comes too late is passed over.
    async fn tell_end(&mut self, mut input: Input) -> Result<(), Error> {
        if let Input::ModelFailed { partial, .. } = &mut input {
            let Partial { text, thinking, .. } = self.shown.so_far();
            (partial.text, partial.thinking) = (text, thinking);
        }
        let spent = match &input {
            Input::ModelDone { turn, output, .. } => {
                self.calibrate(output);
                Some((*turn, Partial { usage: output.usage, cost: output.cost, ..Partial::default() }))
            }
            Input::Reviewed { turn, review, .. } => {
                Some((*turn, Partial { usage: review.usage, cost: review.cost, ..Partial::default() }))
            }
            Input::ModelFailed { turn, partial, .. } | Input::ReviewFailed { turn, partial, .. } => {
                Some((*turn, partial.clone()))
            }
            _ => None,
        };
        match self.commit(input).await {
            Ok(_) if spent.is_some() => self.shown.clear(),
            Ok(_) => {}
            Err(Error::Refused(refusal)) => {
                tracing::debug!("session {}: {refusal}", self.id);
                // The turn is being stopped: what was shown of this reply is told with the turn's end.
                let open = self.state.turn.as_ref().map(|turn| turn.id);
                self.cut_model = spent.filter(|(turn, _)| Some(*turn) == open).map(|(_, partial)| partial);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// A result may hold an image or a sound that this model takes no part of; then it is told that there is one.
fn tell_unseen(request: &mut ModelRequest, model: &dyn Model) {
    let unseen = |part: &Part| !matches!(part, Part::Text { .. }) && !model.takes(part);
    for message in &mut request.messages {
        let ChatMessage::Tool { parts, .. } = &**message else { continue };
        if !parts.iter().any(unseen) {
            continue;
        }
        if let ChatMessage::Tool { parts, .. } = Arc::make_mut(message) {
            for part in parts.iter_mut().filter(|part| unseen(part)) {
                let kept = part.attachment().unwrap_or_default();
                *part = Part::text(format!("[{} that you cannot take; it is kept as {kept}]", part.described()));
            }
        }
    }
}

fn turn_of(effect: &Effect) -> Option<TurnId> {
    match effect {
        Effect::CallModel { turn, .. }
        | Effect::PrepareTool { turn, .. }
        | Effect::ReviewChange { turn, .. }
        | Effect::RunTool { turn, .. }
        | Effect::TimeUp { turn, .. }
        | Effect::ReportGone { turn } => Some(*turn),
        Effect::Compact { .. }
        | Effect::Wake { .. }
        | Effect::PrepareRestore { .. }
        | Effect::RestoreWorkspace { .. } => None,
    }
}

/// The call that runs.
fn call_of(effect: &Effect) -> Option<CallId> {
    match effect {
        Effect::RunTool { call, .. } => Some(*call),
        _ => None,
    }
}

fn model_input(turn: TurnId, step: u32, attempt: u32, outcome: Result<ModelOutput, Fault>, bill: &Bill) -> Input {
    match outcome {
        Ok(output) => Input::ModelDone { turn, step, attempt, output },
        Err(fault) => Input::ModelFailed { turn, step, attempt, fault, partial: bill.so_far() },
    }
}

fn prepared_input(turn: TurnId, call: CallId, prepared: Result<Prepared, String>) -> Input {
    let (intent, diff) = match prepared {
        Ok(Prepared { intent, diff }) => (Ok(intent), diff),
        Err(problem) => (Err(problem), None),
    };
    Input::ToolPrepared { turn, call, intent, diff }
}

/// What is told of an effect that panicked: a bug of ours ends that one piece of work.
fn broken(effect: Effect) -> Option<Input> {
    let why = "this work ended by a fault of the daemon";
    match effect {
        Effect::CallModel { turn, step, attempt, .. } => {
            let fault = Fault::new(FaultKind::Malformed, why);
            Some(Input::ModelFailed { turn, step, attempt, fault, partial: Partial::default() })
        }
        Effect::PrepareTool { turn, call } => Some(prepared_input(turn, call, Err(why.into()))),
        Effect::ReviewChange { turn, call, attempt, .. } => {
            let fault = Fault::new(FaultKind::Malformed, why);
            Some(Input::ReviewFailed { turn, call, attempt, fault, partial: Partial::default() })
        }
        Effect::RunTool { turn, call, run } => {
            let (outcome, result) = (Outcome::Finished, ToolResult::failed(why));
            Some(Input::ToolDone { turn, call, run, outcome, result, duration_ms: 0 })
        }
        Effect::Compact { attempt, .. } => {
            let fault = Fault::new(FaultKind::Malformed, why);
            Some(Input::CompactFailed { attempt, fault, partial: Partial::default() })
        }
        Effect::PrepareRestore { undo } => Some(Input::RestorePrepared { undo, prepared: Err(vec![whole(why)]) }),
        Effect::RestoreWorkspace { undo } => {
            Some(Input::RestoreDone { undo, done: Err(FailedRestore::InPart(vec![whole(why)])) })
        }
        Effect::TimeUp { .. } | Effect::Wake { .. } | Effect::ReportGone { .. } => None,
    }
}
