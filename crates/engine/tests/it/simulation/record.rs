//! What a life knows of one session from its writes alone: every event and delta in the order in which they came to last, and what follows from them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tenure_core::{
    budget::Budgets,
    command::{Answer, Verdict},
    context::Transcript,
    cursor::Cursor,
    delta::{Delta, Stream},
    event::Event,
    ids::{CallId, MessageId, SessionId, TurnId},
    policy::{Policy, Scope},
    session::Session,
    time::Timestamp,
    tool::{Outcome, ToolKind},
};

use super::{compactions::Compaction, rules::Lasting};

/// One thing that watchers see.
pub struct Item {
    pub cursor: Cursor,
    /// The turn and the delta; `None` for a numbered event, which is `events[cursor.seq - 1]`.
    pub delta: Option<(TurnId, Delta)>,
    /// A power cut may have taken it.
    pub may_be_gone: bool,
}

pub struct Call {
    pub turn: TurnId,
    pub name: String,
    pub kind: ToolKind,
    pub subject: String,
    pub has_problem: bool,
    pub requested: Option<Option<Timestamp>>,
    pub answered: Option<(Verdict, Scope, u64)>,
    /// Somebody is shown what it would change, and whether a yes was said to that.
    pub shown: bool,
    pub reviewed: bool,
    /// Intents in the log, and how often the tool was really started.
    pub intents: u32,
    pub runs: u32,
    /// The crash that cut the last run is in the log.
    pub cut: bool,
    pub outcome: Option<Outcome>,
    /// What the tool gave back when it last came to its end.
    pub gave: Option<String>,
}

/// The open turn.
pub struct Open {
    pub id: TurnId,
    pub stopping: bool,
    /// The event that said so: once the engine has heard of it nothing may begin.
    pub stopping_since: u64,
    pub interrupted: bool,
    pub paused: bool,
    /// Its time limit has stopped a call, and it is still to say so.
    pub time_up: bool,
    pub step: u32,
    pub attempts: u32,
    pub order: Vec<CallId>,
    pub calls_started: u64,
    pub resumed_in_a_row: u32,
    /// Text shown per step and attempt, while nothing has closed it.
    pub shown: BTreeMap<(u32, u32), String>,
    pub lengths: HashMap<(u32, u32, Stream), u64>,
    /// A power cut fell into it.
    pub torn: bool,
}

#[derive(Clone)]
pub struct KeyUsed {
    pub tag: String,
    pub at: Timestamp,
    pub answer: Answer,
}

pub struct Record {
    pub id: SessionId,
    /// What the maker of the session asked for.
    pub policy: Policy,
    pub budgets: Budgets,
    pub events: Vec<Event>,
    pub items: Vec<Item>,
    /// The fold of all events.
    pub state: Session,
    /// The fold up to the state that the engine last showed.
    pub lagging: Session,
    /// Events that were read back from the store and found equal.
    pub read_back: u64,
    pub open: Option<Open>,
    pub queued: BTreeSet<TurnId>,
    pub settled: BTreeMap<TurnId, &'static str>,
    pub calls: BTreeMap<CallId, Call>,
    pub lasting: Lasting,
    pub messages: BTreeMap<MessageId, u64>,
    pub taken: BTreeSet<MessageId>,
    pub ended: bool,
    /// What the model is to be shown, as the core folds it.
    pub told: Transcript,
    /// How the last message of a person that a turn took in begins.
    pub newest: Option<String>,
    pub compaction: Option<Compaction>,
    /// Compactions of the policy since the last reply.
    pub compacted_in_vain: u32,
    /// Turns that changed something, and whether that was taken back.
    pub checkpoints: BTreeMap<TurnId, bool>,
    pub undoing: Option<TurnId>,
    pub attachments: BTreeSet<String>,
    pub keys: BTreeMap<(String, String), KeyUsed>,
    /// First and last event of the one decision that each command led to.
    pub decisions: HashMap<String, (u64, u64)>,
    /// Tools that were named as left when their turn was settled.
    pub left: BTreeSet<CallId>,
    /// The last event that the engine knows to last.
    pub heard: u64,
    /// The disk refused something since the last approval was asked for.
    pub refused: bool,
    /// The disk refused something since the last decision; a crash may bring it to light.
    pub unsure: bool,
    /// The last event before the last power cut. Of a delta up to there the disk may show what a write that failed had
    /// left, in other pieces than were shown: the text is the same, the records need not be.
    pub cut_at: u64,
    /// A power cut or the sweeper may have taken deltas.
    pub spools_lost: bool,
}

impl Record {
    pub fn born(event: &Event) -> Option<Record> {
        let state = Session::born(event)?;
        Some(Record {
            id: event.session_id,
            policy: state.policy.clone(),
            budgets: state.budgets.clone(),
            events: vec![],
            items: vec![],
            lagging: state.clone(),
            state,
            read_back: 0,
            open: None,
            queued: BTreeSet::new(),
            settled: BTreeMap::new(),
            calls: BTreeMap::new(),
            lasting: Lasting::default(),
            messages: BTreeMap::new(),
            taken: BTreeSet::new(),
            ended: false,
            told: Transcript::default(),
            newest: None,
            compaction: None,
            compacted_in_vain: 0,
            checkpoints: BTreeMap::new(),
            undoing: None,
            attachments: BTreeSet::new(),
            keys: BTreeMap::new(),
            decisions: HashMap::new(),
            left: BTreeSet::new(),
            heard: 1,
            refused: false,
            unsure: false,
            cut_at: 0,
            spools_lost: false,
        })
    }

    pub fn head(&self) -> u64 {
        self.events.len() as u64
    }

    pub fn decision(&self, tag: &str) -> Option<&[Event]> {
        let (first, last) = self.decisions.get(tag)?;
        Some(&self.events[*first as usize - 1..*last as usize])
    }

    /// Whether this turn is open and the engine does not know that it is to be stopped.
    pub fn may_begin(&self, turn: TurnId) -> bool {
        let stopped = |open: &Open| open.stopping && open.stopping_since <= self.heard;
        self.open.as_ref().is_some_and(|open| open.id == turn && !stopped(open))
    }

    /// The calls that wait for a yes.
    pub fn waiting(&self) -> Vec<CallId> {
        let waits = |call: &Call| call.requested.is_some() && call.answered.is_none() && call.outcome.is_none();
        self.calls.iter().filter(|(_, call)| waits(call)).map(|(id, _)| *id).collect()
    }

    /// The sweeper was there: deltas of settled turns may be gone.
    pub fn lose_old_spools(&mut self) {
        self.spools_lost = true;
        for item in &mut self.items {
            item.may_be_gone |= item.delta.as_ref().is_some_and(|(turn, _)| self.settled.contains_key(turn));
        }
    }

    /// A power cut: what was shown of deltas may be gone, and the open turn's spool may be torn.
    pub fn lose_power(&mut self) {
        self.spools_lost = true;
        self.cut_at = self.head();
        for item in self.items.iter_mut().filter(|item| item.delta.is_some()) {
            item.may_be_gone = true;
        }
        if let Some(open) = &mut self.open {
            open.torn = true;
        }
    }
}
