//! Follows one turn: shows it, asks the person where that is wanted, and ends when the turn rests.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tenure_client::{
    Client, EventStream, Item,
    print::{Before, Channel, Detail, Piece, Printer, Tone, money, question, tamed},
};
use tenure_wire::{Actor, Approval, Approve, Cancel, Delivery, Event, Part, Scope, SendMessage, Verdict};
use tokio::{signal::unix::Signal, sync::watch, time::Instant};

use crate::{
    before,
    daemon::{Way, insist, tell_missed},
    data,
    exit::Exit,
    permit::Permit,
    slash::{self, Slash},
    terminal::{self, Lines, Output},
};

const CHOICE: &str = "[y] yes  [n] no  [s] yes, for this session > ";
/// More than this is not held back behind an open question.
const HELD_MAX: usize = 4096;

/// Who answers approvals.
#[derive(Debug, Clone, Copy)]
pub enum Answers {
    Person,
    Rule(Permit),
}

/// What the turn is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// It is all that was asked for: its end tells everything, and what is typed outside a question is passed over.
    Once,
    /// The same, and only its last text is an answer: it has to fit a schema, and what came before was tried or said on the way.
    Final,
    /// A conversation: what is typed outside a question goes to the agent at work.
    Chat,
}

/// How following ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// The turn rests; this is what it would exit with.
    Rested(Exit),
    /// The person did not want to wait for that.
    Left,
}

/// Where the files are that the agent works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    Here,
    /// The daemon may run on another machine.
    Elsewhere,
}

/// Where a turn is to be followed, and for whom.
pub struct Seat<'a> {
    pub output: Output,
    pub client: Client,
    pub way: Way,
    pub files: Files,
    pub session: String,
    pub answers: Answers,
    pub frame: Frame,
    /// Where a person types.
    pub lines: Option<&'a mut Lines>,
}

pub struct Follow<'a> {
    seat: Seat<'a>,
    turn: String,
    printer: Printer,
    /// Calls the person has not answered yet; the first one is being asked about.
    waiting: VecDeque<Waiting>,
    /// What came while a question is open: shown once it is answered, so that it does not tear the question apart.
    held: Vec<Piece>,
    /// The whole text of the last answer.
    text: String,
    events: u64,
    canceled_by: Option<CanceledBy>,
    /// The person has had enough of it.
    leaves: bool,
}

struct Waiting {
    call: String,
    data: Value,
    /// The file that the call writes whole, where it can be looked at.
    written: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CanceledBy {
    Interrupt,
    Timeout,
}

/// How it came to rest.
struct Rest {
    status: String,
    data: Value,
}

impl Rest {
    fn of(status: &str, data: Value) -> Option<Self> {
        Some(Self { status: status.to_owned(), data })
    }
}

impl<'a> Follow<'a> {
    pub fn new(seat: Seat<'a>, turn: String) -> Self {
        Self {
            seat,
            turn,
            printer: Printer::new(terminal::stdout_look(), Detail::Story).notes(terminal::stderr_look()),
            waiting: VecDeque::new(),
            held: vec![],
            text: String::new(),
            events: 0,
            canceled_by: None,
            leaves: false,
        }
    }

    /// Answers what waited before the turn was followed.
    pub async fn waited(&mut self, approvals: &[Approval]) -> anyhow::Result<()> {
        for approval in approvals {
            self.asked(&serde_json::to_value(approval)?).await?;
        }
        Ok(())
    }

    /// Follows the turn to where it rests. `interrupts` listens since before the message was sent, so that a Ctrl-C at
    /// any time is heard; `first` is what happened until now.
    pub async fn until_rest(
        mut self,
        stream: &mut EventStream,
        timeout: Option<Duration>,
        interrupts: &mut Signal,
        mut first: Option<CanceledBy>,
    ) -> anyhow::Result<Followed> {
        let mut missed = stream.missed();
        let deadline = timeout.map(|after| Instant::now() + after);
        let mut time_is_over = std::pin::pin!(sleep_until(deadline));
        loop {
            if self.leaves {
                return Ok(left());
            }
            let by = match first.take() {
                Some(by) => by,
                None => tokio::select! {
                    rest = self.step(stream, &mut missed) => match rest? {
                        Some(rest) => return self.finish(&rest).map(Followed::Rested),
                        None => continue,
                    },
                    _ = interrupts.recv() => CanceledBy::Interrupt,
                    () = &mut time_is_over, if self.canceled_by.is_none() => CanceledBy::Timeout,
                },
            };
            if self.canceled_by.is_some() {
                terminal::note("Left; the turn is being canceled.\n");
                return Ok(Followed::Left);
            }
            // The daemon may be gone: whoever wants to leave need not wait until it is back.
            tokio::select! {
                canceled = self.cancel(by) => canceled?,
                _ = interrupts.recv() => return Ok(left()),
            }
        }
    }

    /// One event or one typed line. May be dropped half done, for a cancel: what settles the turn is taken in at once.
    async fn step(
        &mut self,
        stream: &mut EventStream,
        missed: &mut watch::Receiver<bool>,
    ) -> anyhow::Result<Option<Rest>> {
        tokio::select! {
            // A stream that follows has no end of its own.
            item = stream.next() => match item {
                Some(item) => self.take(&item?).await,
                None => Ok(None),
            },
            line = typed(&mut self.seat.lines), if self.listens() => self.typed(line.trim()).await.map(|()| None),
            is_missed = tell_missed(missed, &self.seat.way) => {
                if !is_missed {
                    self.ask_first();
                }
                Ok(None)
            }
        }
    }

    async fn take(&mut self, item: &Item) -> anyhow::Result<Option<Rest>> {
        let event: Event = serde_json::from_str(&item.json)?;
        let is_ours = event.turn_id.as_deref() == Some(&self.turn);
        if !is_ours && item.kind != "stream_reset" {
            return Ok(None);
        }
        self.events += u64::from(event.pos.is_none());
        match self.seat.output {
            Output::Json => terminal::print_line(&item.json)?,
            // The question itself tells it better.
            Output::Text if self.seat.lines.is_some() && item.kind == "approval_requested" => {
                let pieces = self.printer.finish();
                self.show(pieces)?;
            }
            // It was told when the key was pressed.
            Output::Text if self.canceled_by == Some(CanceledBy::Interrupt) && item.kind == "cancel_requested" => {}
            Output::Text => {
                let mut pieces = self.printer.event(&event);
                if self.seat.frame == Frame::Final {
                    pieces.retain(|piece| piece.channel == Channel::Note);
                    if item.kind == "turn_completed" {
                        pieces.push(Piece { channel: Channel::Answer, text: format!("{}\n", self.text.trim_end()) });
                    }
                }
                self.show(pieces)?;
            }
        }
        self.consider(event).await
    }

    async fn consider(&mut self, event: Event) -> anyhow::Result<Option<Rest>> {
        self.heed_others(&event)?;
        let data = event.data;
        Ok(match event.wire_type.as_str() {
            "model_output_completed" => {
                self.text = data["text"].as_str().unwrap_or_default().to_owned();
                None
            }
            "approval_requested" => {
                self.asked(&data).await?;
                None
            }
            "turn_completed" => Rest::of("completed", data),
            "turn_failed" => Rest::of("failed", data),
            "turn_canceled" => Rest::of("canceled", data),
            "turn_expired" => Rest::of("expired", data),
            "turn_interrupted" => self.rest_if_interrupted().await?,
            "budget_reached" if matches!(self.seat.answers, Answers::Rule(_)) => {
                self.rest_if_stopped_by_budget().await?
            }
            _ => None,
        })
    }

    /// What others do may end a question that is open here.
    fn heed_others(&mut self, event: &Event) -> anyhow::Result<()> {
        let by = by(event.actor.as_ref());
        match event.wire_type.as_str() {
            "approval_granted" => self.answered_elsewhere(&event.data, &format!("It was approved {by}.")),
            "approval_denied" => self.answered_elsewhere(&event.data, &format!("It was denied {by}.")),
            "approval_expired" => self.answered_elsewhere(&event.data, "It is too late to answer."),
            "cancel_requested" => self.withdraw(&format!("The turn is canceled {by}.")),
            _ => Ok(()),
        }
    }

    /// After a restart a turn goes on by itself, unless a person should look first.
    async fn rest_if_interrupted(&mut self) -> anyhow::Result<Option<Rest>> {
        let rest = self.rest_if("interrupted").await?;
        if rest.is_some() && self.seat.output == Output::Text {
            let session = &self.seat.session;
            terminal::note(&format!("It waits for you: look, then `tenure session resume {session}`.\n"));
        }
        Ok(rest)
    }

    /// An unattended turn ends at its budget by itself; an attended one would wait for somebody who is not here.
    async fn rest_if_stopped_by_budget(&mut self) -> anyhow::Result<Option<Rest>> {
        self.rest_if("waiting_budget").await
    }

    async fn rest_if(&mut self, status: &str) -> anyhow::Result<Option<Rest>> {
        let look = || self.seat.client.turn(&self.seat.session, &self.turn, Duration::ZERO);
        let turn = insist(&self.seat.client, &self.seat.way, look).await?;
        let data = json!({"spent": turn.spent, "cost_micro_usd": turn.cost_micro_usd});
        Ok(if turn.status == status { Rest::of(status, data) } else { None })
    }

    async fn asked(&mut self, data: &Value) -> anyhow::Result<()> {
        let call = data["tool_call_id"].as_str().unwrap_or_default().to_owned();
        match self.seat.answers {
            Answers::Rule(permit) => {
                let verdict = permit.verdict(data["kind"].as_str().unwrap_or_default());
                let reason = Some("answered by --approve, nobody can be asked".to_owned());
                self.answer(call, verdict, Scope::Once, reason).await
            }
            Answers::Person => {
                if self.waiting.is_empty() {
                    self.pass_on_typed().await?;
                }
                let written = self.written_by(data).await;
                self.waiting.push_back(Waiting { call, data: data.clone(), written });
                if self.waiting.len() == 1 {
                    self.ask_first();
                }
                Ok(())
            }
        }
    }

    fn show(&mut self, pieces: Vec<Piece>) -> anyhow::Result<()> {
        self.held.extend(pieces);
        if self.waiting.is_empty() || self.held.len() > HELD_MAX { self.show_held() } else { Ok(()) }
    }

    fn show_held(&mut self) -> anyhow::Result<()> {
        if let (false, Some(lines)) = (self.held.is_empty(), &mut self.seat.lines) {
            lines.after_shown();
        }
        Ok(terminal::write(&std::mem::take(&mut self.held))?)
    }

    /// What was typed before a question came is no answer to it: whole lines still go to the agent.
    async fn pass_on_typed(&mut self) -> anyhow::Result<()> {
        while self.seat.frame == Frame::Chat && self.canceled_by.is_none() {
            let typed = self.seat.lines.as_mut().and_then(|lines| lines.next_typed());
            let Some(line) = typed else { break };
            Box::pin(self.typed(line.trim())).await?;
        }
        Ok(())
    }

    async fn written_by(&self, data: &Value) -> Option<PathBuf> {
        let path = before::written_by(data).filter(|_| self.seat.files == Files::Here)?;
        let look = || self.seat.client.session(&self.seat.session);
        let view = insist(&self.seat.client, &self.seat.way, look).await.ok()?;
        Some(Path::new(&view.workspace_path).join(path))
    }

    /// Puts the question for the first call that waits.
    fn ask_first(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.leave_out_typed("typed before the question");
        let Some(first) = self.waiting.front() else { return };
        let look = terminal::stderr_look();
        let name = format!("Allow {}?", first.data["name"].as_str().unwrap_or_default());
        let before = first.written.as_deref().map_or(Before::Unseen, before::read);
        let about = question(&first.data, &before, &look);
        terminal::note(&format!("{}\n{about}{CHOICE}", look.paint(Tone::Ask, &name)));
    }

    /// Nothing that was typed for something else answers what comes now, and nothing is dropped in silence.
    fn leave_out_typed(&mut self, why: &str) {
        let Some(lines) = &mut self.seat.lines else { return };
        let typed = lines.forget_typed();
        if !typed.trim().is_empty() {
            terminal::note(&format!("Left out, for it was {why}: {}\n", tamed(typed.trim())));
        }
    }

    fn listens(&self) -> bool {
        !self.waiting.is_empty() || self.seat.frame == Frame::Chat
    }

    async fn typed(&mut self, line: &str) -> anyhow::Result<()> {
        if self.seat.frame == Frame::Chat
            && let Some(slash) = slash::parse(line)
        {
            return self.obey(slash).await;
        }
        if self.waiting.is_empty() {
            return match self.seat.lines.as_mut().is_some_and(|lines| is_late(lines, line)) {
                true => Ok(()),
                false => self.steer(line).await,
            };
        }
        match answer_of(line) {
            Some((verdict, scope)) => self.decide(verdict, scope).await,
            None => {
                terminal::note("Please type y, n or s > ");
                Ok(())
            }
        }
    }

    /// Answers the call that is asked about, and goes on to the next.
    async fn decide(&mut self, verdict: Verdict, scope: Scope) -> anyhow::Result<()> {
        let Some(first) = self.waiting.pop_front() else { return Ok(()) };
        self.answer(first.call, verdict, scope, None).await?;
        self.show_held()?;
        self.ask_first();
        Ok(())
    }

    /// A command of the chat while the turn is open: those about the turn are done, others wait for its end.
    async fn obey(&mut self, slash: Result<Slash, String>) -> anyhow::Result<()> {
        match (slash, self.waiting.is_empty()) {
            (Ok(Slash::Approve), false) => return self.decide(Verdict::Approve, Scope::Once).await,
            (Ok(Slash::Deny), false) => return self.decide(Verdict::Deny, Scope::Once).await,
            (Ok(Slash::Cancel), _) if self.canceled_by.is_none() => self.cancel(CanceledBy::Interrupt).await?,
            (Ok(Slash::Exit), _) => self.leaves = true,
            (Ok(Slash::Help), _) => terminal::note(&slash::help()),
            (Ok(_), _) => terminal::note("That can be done when the turn is over; /cancel ends it, /exit leaves it.\n"),
            (Err(problem), _) => terminal::note(&format!("{problem}\n")),
        }
        if !self.waiting.is_empty() {
            terminal::note(CHOICE);
        }
        Ok(())
    }

    /// Passes on to the agent at work what was typed.
    async fn steer(&mut self, line: &str) -> anyhow::Result<()> {
        if line.is_empty() {
            return Ok(());
        }
        if let (Some(_), Some(lines)) = (self.canceled_by, &mut self.seat.lines) {
            lines.keep(line);
            self.faint("  kept: it is sent when the turn is over");
            return Ok(());
        }
        let parts = vec![Part::text(line)];
        let message = SendMessage { parts, delivery: Some(Delivery::Steer), ..SendMessage::default() };
        let keyed = self.seat.client.with_key(data::random_hex()?);
        insist(&keyed, &self.seat.way, || keyed.send(&self.seat.session, &message)).await?;
        self.faint("  passed on: it is read before the next step");
        Ok(())
    }

    fn faint(&self, text: &str) {
        terminal::note(&format!("{}\n", terminal::stderr_look().paint(Tone::Faint, text)));
    }

    fn answered_elsewhere(&mut self, data: &Value, how: &str) -> anyhow::Result<()> {
        let call = data["tool_call_id"].as_str().unwrap_or_default();
        let Some(at) = self.waiting.iter().position(|waiting| waiting.call == call) else { return Ok(()) };
        self.waiting.remove(at);
        if at == 0 {
            self.close_question(how)?;
            self.ask_first();
        }
        Ok(())
    }

    /// No question of this turn can be answered any more.
    fn withdraw(&mut self, why: &str) -> anyhow::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.waiting.clear();
        self.close_question(why)
    }

    /// The open question went away by itself. Its line is still open, and so may be an answer to it.
    fn close_question(&mut self, why: &str) -> anyhow::Result<()> {
        terminal::note(&format!("\n{why}\n"));
        self.leave_out_typed("typed for that question");
        if let Some(lines) = &mut self.seat.lines {
            lines.expect_late();
        }
        self.show_held()
    }

    async fn answer(&self, call: String, action: Verdict, scope: Scope, reason: Option<String>) -> anyhow::Result<()> {
        let turn_id = Some(self.turn.clone());
        let answer = Approve { turn_id, tool_call_id: call, action, reason, scope: Some(scope), ..Approve::default() };
        match insist(&self.seat.client, &self.seat.way, || self.seat.client.approve(&self.seat.session, &answer)).await
        {
            // Somebody was faster, or the turn is over: the stream tells what became of it.
            Err(error) if matches!(error.code(), Some("already_answered" | "not_waiting" | "turn_settled")) => Ok(()),
            answered => Ok(answered.map(drop)?),
        }
    }

    async fn cancel(&mut self, by: CanceledBy) -> anyhow::Result<()> {
        let reason = match by {
            CanceledBy::Interrupt => "interrupted at the keyboard",
            CanceledBy::Timeout => "it took longer than --timeout",
        };
        self.canceled_by = Some(by);
        if !self.waiting.is_empty() {
            // The question's line is still open.
            terminal::note("\n");
            self.waiting.clear();
        }
        let pieces = self.printer.finish();
        self.show(pieces)?;
        if by == CanceledBy::Interrupt {
            terminal::note("Canceling; Ctrl-C again leaves at once.\n");
        }
        let cancel = Cancel { turn_id: Some(self.turn.clone()), reason: Some(reason.to_owned()), ..Cancel::default() };
        match insist(&self.seat.client, &self.seat.way, || self.seat.client.cancel(&self.seat.session, &cancel)).await {
            Err(error) if matches!(error.code(), Some("no_open_turn" | "turn_settled" | "turn_completed")) => Ok(()),
            canceling => Ok(canceling.map(drop)?),
        }
    }

    fn finish(mut self, rest: &Rest) -> anyhow::Result<Exit> {
        self.withdraw(&format!("The turn is over: {}.", rest.status))?;
        let pieces = self.printer.finish();
        self.show(pieces)?;
        let (spent, cost) = (&rest.data["spent"], rest.data["cost_micro_usd"].as_u64());
        let (steps, calls) = (spent["steps"].as_u64().unwrap_or(0), spent["tool_calls"].as_u64().unwrap_or(0));
        match self.seat.output {
            Output::Json => terminal::print_json(&json!({
                "type": "result",
                "session_id": self.seat.session,
                "turn_id": self.turn,
                "status": rest.status,
                "text": self.text,
                "steps": steps,
                "tool_calls": calls,
                "cost_micro_usd": cost,
                "events": self.events,
            }))?,
            Output::Text => {
                let look = terminal::stderr_look();
                let (status, events, session) = (&rest.status, self.events, &self.seat.session);
                let counts = [(steps, "step"), (calls, "call"), (events, "event")]
                    .map(|(n, what)| crate::count::counted(n, what));
                let counts = format!("{}, cost {}", counts.join(", "), money(cost));
                let whose = if self.seat.frame != Frame::Chat { format!("; session {session}") } else { String::new() };
                terminal::note(&look.paint(Tone::Faint, &format!("{status}: {counts}{whose}")));
                terminal::note("\n");
            }
        }
        Ok(match (self.canceled_by, rest.status.as_str()) {
            (Some(CanceledBy::Interrupt), _) => Exit::Interrupted,
            (_, "completed") => Exit::Ok,
            _ => Exit::Failed,
        })
    }
}

/// The person does not wait for the cancel.
pub fn left() -> Followed {
    terminal::note("Left; the turn goes its way.\n");
    Followed::Left
}

/// Whether a line is a late answer to a question that went away: such a one is told, and is no message.
pub fn is_late(lines: &mut Lines, line: &str) -> bool {
    let line = line.trim();
    let is_late = !line.is_empty() && lines.may_be_late() && answer_of(line).is_some();
    if is_late {
        terminal::note(&format!("Not sent: '{line}', for the question is gone. Type it again to send it.\n"));
    }
    is_late
}

fn answer_of(line: &str) -> Option<(Verdict, Scope)> {
    Some(match line.to_ascii_lowercase().as_str() {
        "y" | "yes" => (Verdict::Approve, Scope::Once),
        "s" | "session" => (Verdict::Approve, Scope::Session),
        "n" | "no" => (Verdict::Deny, Scope::Once),
        _ => return None,
    })
}

/// Who did it, as far as the event tells.
fn by(actor: Option<&Actor>) -> String {
    let Some(actor) = actor else { return "elsewhere".into() };
    match (actor.kind.as_str(), &actor.id, &actor.surface) {
        ("user", Some(id), _) => format!("elsewhere, by {}", tamed(id)),
        ("user", None, Some(surface)) => format!("elsewhere, over {}", tamed(surface)),
        ("user", None, None) => "elsewhere".into(),
        (kind, _, _) => format!("by the {}", tamed(kind)),
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn typed(lines: &mut Option<&mut Lines>) -> String {
    match lines {
        Some(lines) => lines.next().await,
        None => std::future::pending().await,
    }
}
