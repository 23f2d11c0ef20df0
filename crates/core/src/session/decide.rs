//! Judges what is asked: events that follow, or a refusal that changes nothing.

use serde_json::json;

use crate::{
    command::{Answer, Command, Input, KeyUse, Refusal},
    event::{Actor, Body, ContextSeeded, Event, SessionCreated, SessionExpired, SessionUpdated, ToolsOffered},
    ids::{SessionId, TurnId},
    policy::Policy,
    session::{KEY_KEPT_MS, Life, Session, key_name},
    time::Moment,
};

mod commands;
mod compact;
mod damaged;
mod flow;
mod fork;
mod recover;
mod review;
mod undo;
mod work;

use work::Gone;

pub use damaged::{LOG_DAMAGED, fail_damaged};
pub use fork::fork;

/// What one input leads to: the events, the state they fold to, and what the asker is told.
#[derive(Debug, Clone)]
pub struct Decision {
    pub events: Vec<Event>,
    pub state: Session,
    pub answer: Option<Answer>,
}

/// The first decision of a session.
pub fn create(id: SessionId, created: SessionCreated, actor: Actor, moment: &mut Moment) -> Result<Decision, Refusal> {
    check_policy(&created.policy)?;
    let event =
        Event { seq: 1, ts: moment.at, session_id: id, turn_id: None, actor, key: None, body: Body::from(created) };
    let state = Session::born(&event).ok_or_else(Refusal::stale)?;
    Ok(Decision { events: vec![event], state, answer: None })
}

fn check_policy(policy: &Policy) -> Result<(), Refusal> {
    if !policy.compaction.is_sane() {
        return Err(Refusal::new(
            "unsupported_policy",
            "compaction needs from_percent and block_percent from 1 to 100",
            "leave compaction out for 80 and 95",
        ));
    }
    Ok(())
}

impl Session {
    /// Judges one input at one moment. Pure: the same arguments give the same decision.
    pub fn decide(&self, input: Input, moment: &mut Moment) -> Result<Decision, Refusal> {
        match input {
            Input::Command { command, actor, key } => self.decide_command(command, actor, key, moment),
            Input::ContextFound(seed) => Ok(self.take_seed(seed, moment)),
            Input::ToolsFound(offered) => Ok(self.take_offer(offered, moment)),
            Input::ContextMeasured { turn, tokens, window } => self.context_measured(turn, tokens, window, moment),
            Input::Compacted { attempt, compacted } => self.compacted(attempt, compacted, moment),
            Input::CompactFailed { attempt, fault, partial } => self.compact_failed(attempt, fault, partial, moment),
            Input::ModelDone { turn, step, attempt, output } => self.model_done((turn, step, attempt), output, moment),
            Input::ModelFailed { turn, step, attempt, fault, partial } => {
                self.model_failed((turn, step, attempt), fault, partial, moment)
            }
            Input::ToolPrepared { turn, call, intent, diff } => self.tool_prepared(turn, call, intent, diff, moment),
            Input::Reviewed { turn, call, attempt, review } => self.reviewed((turn, call, attempt), review, moment),
            Input::ReviewFailed { turn, call, attempt, fault, partial } => {
                self.review_failed((turn, call, attempt), fault, partial, moment)
            }
            Input::ToolDone { turn, call, run, outcome, result, duration_ms } => {
                self.tool_done((turn, call, run), outcome, result, duration_ms, moment)
            }
            Input::TimeUp { turn } => self.time_up(turn, moment),
            Input::Woke { call } => self.approval_expired(call, moment),
            Input::WorkGone { turn, left, took, cut } => self.work_gone(turn, Gone { left, took, cut }, moment),
            Input::RestorePrepared { undo, prepared } => self.restore_prepared(undo, prepared, moment),
            Input::RestoreDone { undo, done } => self.restore_done(undo, done, moment),
            Input::Recover { classes, restore, partial, seen } => {
                Ok(self.recover(&classes, restore, partial, seen, moment))
            }
            Input::Expire { idle_ms } => self.expire(idle_ms, moment),
        }
    }

    fn decide_command(
        &self,
        command: Command,
        actor: Actor,
        key: Option<String>,
        moment: &mut Moment,
    ) -> Result<Decision, Refusal> {
        let endpoint = command.endpoint();
        let digest = key.as_ref().map(|_| command.digest());
        if let (Some(key), Some(digest)) = (&key, &digest)
            && let Some(first) = self.first_answer(endpoint, key, digest, moment)?
        {
            return Ok(Decision { events: Vec::new(), state: self.clone(), answer: Some(first) });
        }
        let mut draft = Draft::new(self, moment);
        let mut answer = draft.command(command, actor.clone())?;
        if key.is_some() && draft.events.is_empty() {
            // Nothing changed, but the key and its answer must outlive a restart: an empty update carries them.
            draft.emit(actor, None, SessionUpdated::default());
            if let Answer::Updated { seq } = &mut answer {
                *seq = draft.state.seq;
            }
        }
        let mut decision = draft.done();
        if let (Some(key), Some(digest)) = (key, digest)
            && let Some(first) = decision.events.first_mut()
        {
            let used = KeyUse { endpoint: endpoint.into(), key, digest, answer: answer.clone() };
            decision.state.remember_key(Some(&used), first.ts);
            first.key = Some(used);
        }
        decision.answer = Some(answer);
        Ok(decision)
    }

    fn first_answer(
        &self,
        endpoint: &str,
        key: &str,
        digest: &str,
        moment: &Moment,
    ) -> Result<Option<Answer>, Refusal> {
        let Some(kept) = self.keys.get(&key_name(endpoint, key)) else { return Ok(None) };
        if kept.at.plus_ms(KEY_KEPT_MS) <= moment.at {
            return Ok(None);
        }
        if kept.digest != digest {
            return Err(Refusal::new(
                "key_reused",
                "this idempotency key was used for another request",
                "use a new key for a new request",
            ));
        }
        Ok(Some(kept.answer.clone()))
    }

    /// What was read from the workspace is recorded when it differs from what is known.
    fn take_seed(&self, seed: ContextSeeded, moment: &mut Moment) -> Decision {
        let mut draft = Draft::new(self, moment);
        if self.life == Life::Open && self.seed_differs(&seed) {
            let turn = self.turn.as_ref().map(|turn| turn.id);
            draft.emit(Actor::SYSTEM, turn, seed);
        }
        draft.done()
    }

    /// Whether this seed would change what the model sees or how the turn is verified.
    pub fn seed_differs(&self, seed: &ContextSeeded) -> bool {
        match &self.seed {
            Some(known) => known.digest != seed.digest() || seed.bundle.is_some(),
            None => !seed.files.is_empty() || seed.verify.is_some() || seed.bundle.is_some(),
        }
    }

    /// What is offered is recorded when it differs from what was offered before.
    fn take_offer(&self, offered: ToolsOffered, moment: &mut Moment) -> Decision {
        let mut draft = Draft::new(self, moment);
        if self.life == Life::Open && self.offer_differs(&offered) {
            let turn = self.turn.as_ref().map(|turn| turn.id);
            draft.emit(Actor::SYSTEM, turn, offered);
        }
        draft.done()
    }

    /// Whether the model would be offered other tools than before.
    pub fn offer_differs(&self, offered: &ToolsOffered) -> bool {
        match &self.offered {
            Some(known) => *known != offered.digest(),
            None => !offered.tools.is_empty(),
        }
    }

    fn expire(&self, idle_ms: u64, moment: &mut Moment) -> Result<Decision, Refusal> {
        if self.life != Life::Open || self.is_pending() {
            return Err(Refusal::stale());
        }
        let mut draft = Draft::new(self, moment);
        draft.emit(Actor::POLICY, None, SessionExpired { idle_ms });
        Ok(draft.done())
    }
}

/// A decision in the making: each event is applied as it is emitted, so that what follows sees it.
struct Draft<'m> {
    state: Session,
    events: Vec<Event>,
    moment: &'m mut Moment,
}

impl<'m> Draft<'m> {
    fn new(state: &Session, moment: &'m mut Moment) -> Self {
        Self { state: state.clone(), events: Vec::new(), moment }
    }

    fn done(self) -> Decision {
        Decision { events: self.events, state: self.state, answer: None }
    }

    fn emit(&mut self, actor: Actor, turn_id: Option<TurnId>, body: impl Into<Body>) {
        let event = Event {
            seq: self.state.seq + 1,
            // Time never runs backwards inside a log, whatever the clock does.
            ts: self.moment.at.max(self.state.updated_at),
            session_id: self.state.id,
            turn_id,
            actor,
            key: None,
            body: body.into(),
        };
        self.state.apply(&event);
        self.events.push(event);
    }

    /// An event of the open turn.
    fn emit_in_turn(&mut self, actor: Actor, body: impl Into<Body>) {
        let turn = self.state.turn.as_ref().map(|turn| turn.id);
        self.emit(actor, turn, body);
    }
}

fn unknown_turn(id: TurnId) -> Refusal {
    Refusal::new("unknown_turn", format!("there is no turn {id} in this session"), "list the session's turns")
        .with(json!({ "turn_id": id }))
}
