//! Follows one turn: shows it, asks the person where that is wanted, and ends when the turn rests.

mod asking;
mod away;
mod behind;
mod disk;
mod report;

use std::{collections::VecDeque, io::IsTerminal as _, path::PathBuf, time::Duration};

use serde_json::Value;
use tenure_client::{
    Client, EventStream, Item,
    print::{Answered, Channel, Detail, Look, Piece, Printer, Tone, tamed},
};
use tenure_wire::{Actor, Approval, Cancel, Delivery, Event, Part, Scope, SendMessage, Verdict};
use tokio::{signal::unix::Signal, sync::watch, time::Instant};

use crate::{
    commands::{Context, chat::asides, models},
    daemon::{Way, insist},
    data,
    exit::{self, Exit},
    hint,
    permit::{Answers, Permit},
    question::{self, Answer},
    slash::{self, Slash},
    standby,
    terminal::{self, Echo, Heard, Lines, Output},
};

use away::{Daemon, told_missed};
use report::Rest;

/// More than this is not held back behind an open question.
const HELD_MAX: usize = 4096;

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
    /// Nobody waits for that any more, and the program ends like this.
    Left(Exit),
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
    pub context: &'a Context,
    pub client: Client,
    pub way: Way,
    pub session: String,
    pub answers: Answers,
    pub frame: Frame,
    /// Where a person types.
    pub lines: Option<&'a mut Lines>,
    /// The messages that were said here, by their ids.
    pub own: &'a mut Vec<String>,
}

pub struct Follow<'a> {
    seat: Seat<'a>,
    /// The turn that is shown.
    turn: String,
    /// The turn of the message that was sent, while it waits behind the one that is shown.
    behind: Option<String>,
    /// Requests up to this event were asked about when the open turn was looked at.
    asked_until: u64,
    printer: Printer,
    /// Calls the person has not answered yet; the first one is being asked about.
    waiting: VecDeque<Waiting>,
    /// What came while a question is open: shown once it is answered, so that it does not tear the question apart.
    held: Vec<Piece>,
    /// The whole text of the last answer.
    text: String,
    /// Why the model ended it.
    stop_reason: Value,
    events: u64,
    canceled_by: Option<CanceledBy>,
    /// The daemon is away, and could not be started at once.
    is_missed: bool,
    disk: disk::Look,
    /// Whether a call was denied because nobody could be asked.
    is_denied: bool,
    /// Nobody follows it any longer.
    leaves: Option<Leaves>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// The person has had enough of it.
    Typed,
    /// The same, and a question is open.
    Asked,
    /// The daemon was stopped, and it is not for us to start it again.
    Stopped,
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

impl<'a> Follow<'a> {
    pub fn new(seat: Seat<'a>, turn: String) -> Self {
        Self {
            seat,
            turn,
            behind: None,
            asked_until: 0,
            printer: Printer::new(terminal::stdout_look(), Detail::Story)
                .notes(terminal::stderr_look())
                .answered(answered()),
            waiting: VecDeque::new(),
            held: vec![],
            text: String::new(),
            stop_reason: Value::Null,
            events: 0,
            canceled_by: None,
            is_missed: false,
            disk: disk::Look::new(),
            is_denied: false,
            leaves: None,
        }
    }

    /// Answers what waited before the turn was followed.
    pub async fn waited(&mut self, approvals: &[Approval]) -> anyhow::Result<()> {
        for approval in approvals {
            self.asked(&serde_json::to_value(approval)?).await?;
        }
        Ok(())
    }

    /// Takes over at a prompt: these calls were asked about there already, and this was typed.
    pub async fn joined(&mut self, asked: Vec<Approval>, line: &str) -> anyhow::Result<()> {
        for approval in asked {
            let data = serde_json::to_value(&approval)?;
            self.waiting.push_back(Waiting { call: approval.tool_call_id, data, written: None });
        }
        self.heed(line).await
    }

    /// Follows the turn to where it rests. `interrupts` listens since before the message was sent, so that a Ctrl-C at
    /// any time is heard; `first` is what happened until now.
    pub async fn until_rest(
        mut self,
        stream: &mut EventStream,
        timeout: Option<Duration>,
        interrupts: &mut Signal,
        first: Option<CanceledBy>,
    ) -> anyhow::Result<Followed> {
        self.set_echo();
        let session = &self.seat.session;
        terminal::set_last_words(format!("Left; the turn goes on. `tenure cancel {session}` ends it."));
        let followed = self.walk_to_rest(stream, timeout, interrupts, first).await;
        terminal::set_last_words(String::new());
        if let Some(lines) = &self.seat.lines {
            lines.echo(Echo::On);
        }
        followed
    }

    async fn walk_to_rest(
        &mut self,
        stream: &mut EventStream,
        timeout: Option<Duration>,
        interrupts: &mut Signal,
        mut first: Option<CanceledBy>,
    ) -> anyhow::Result<Followed> {
        let mut missed = stream.missed();
        let deadline = timeout.map(|after| Instant::now() + after);
        let mut time_is_over = std::pin::pin!(sleep_until(deadline));
        loop {
            if let Some(leaves) = self.leaves {
                return self.leave(leaves);
            }
            let by = match first.take() {
                Some(by) => by,
                None => tokio::select! {
                    rest = self.step(stream, &mut missed) => match rest? {
                        Some(rest) if self.behind.is_some() && rest.is_settled() => {
                            self.finish(&rest)?;
                            self.canceled_by = None;
                            continue;
                        }
                        Some(rest) => return self.finish(&rest).map(Followed::Rested),
                        None => continue,
                    },
                    _ = interrupts.recv() => CanceledBy::Interrupt,
                    () = &mut time_is_over, if self.canceled_by.is_none() => CanceledBy::Timeout,
                },
            };
            if self.canceled_by.is_some() {
                terminal::note(CANCELED);
                return Ok(Followed::Left(Exit::Interrupted));
            }
            // The daemon may be gone: whoever wants to leave need not wait until it is back.
            tokio::select! {
                canceled = self.cancel(by) => canceled?,
                _ = interrupts.recv() => {
                    let session = &self.seat.session;
                    terminal::tell(&format!("Left; `tenure session show {session}` tells whether the cancel came through."));
                    return Ok(Followed::Left(Exit::Interrupted));
                }
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
            heard = typed(&mut self.seat.lines), if self.listens() => {
                match heard {
                    Heard::Line(line) => self.typed(line.trim()).await?,
                    Heard::End => self.leaves = Some(self.leaving()),
                }
                Ok(None)
            }
            daemon = told_missed(missed, &self.seat.way, self.seat.context) => {
                self.is_missed = matches!(daemon, Daemon::Away);
                match daemon {
                    Daemon::Away => {}
                    Daemon::Back => self.ask_first(),
                    Daemon::Stopped => self.leaves = Some(Leaves::Stopped),
                }
                Ok(None)
            }
            never = standby::keep_starting(self.seat.context), if self.is_missed => match never {},
            () = tokio::time::sleep_until(self.disk.at), if !self.is_missed => {
                self.look_at_disk().await?;
                Ok(None)
            }
        }
    }

    fn leave(&mut self, leaves: Leaves) -> anyhow::Result<Followed> {
        if !self.waiting.is_empty() {
            // The question's line is still open.
            terminal::note("\n");
            self.waiting.clear();
        }
        let pieces = self.printer.finish();
        self.show(pieces)?;
        let session = &self.seat.session;
        Ok(match leaves {
            Leaves::Typed | Leaves::Asked if self.canceled_by.is_some() => {
                terminal::note(CANCELED);
                Followed::Left(Exit::Ok)
            }
            Leaves::Typed => {
                terminal::note("Left; the turn goes its way.\n");
                Followed::Left(Exit::Ok)
            }
            Leaves::Asked => {
                terminal::tell(&format!(
                    "Left; the turn waits for an answer: `tenure approve {session}` says yes, `tenure deny {session}` no."
                ));
                Followed::Left(Exit::Ok)
            }
            Leaves::Stopped => {
                terminal::tell("The daemon was stopped; the session stays, and its turn goes on when one runs again.");
                Followed::Left(Exit::NoDaemon)
            }
        })
    }

    fn leaving(&self) -> Leaves {
        if self.waiting.is_empty() { Leaves::Typed } else { Leaves::Asked }
    }

    /// While the agent speaks, what is typed is shown once it is a whole line; answers to a question are seen at once.
    fn set_echo(&self) {
        if let (Frame::Chat, Some(lines)) = (self.seat.frame, &self.seat.lines) {
            lines.echo(if self.waiting.is_empty() { Echo::Off } else { Echo::On });
        }
    }

    async fn take(&mut self, item: &Item) -> anyhow::Result<Option<Rest>> {
        let event: Event = serde_json::from_str(&item.json)?;
        if let Some(said) = said_elsewhere(&event, self.seat.own, &terminal::stderr_look())
            && (self.seat.frame, self.output()) == (Frame::Chat, Output::Text)
        {
            let mut pieces = self.printer.finish();
            pieces.push(Piece { channel: Channel::Note, text: said });
            self.show(pieces)?;
        }
        self.disk.put_off();
        self.heed_queue(&event).await?;
        let is_ours = event.turn_id.as_deref() == Some(&self.turn);
        // A limit is the session's; whoever waits for it wants to see it raised.
        let is_raise = item.kind == "budget_raised" && (self.seat.frame, self.output()) == (Frame::Chat, Output::Text);
        if !is_ours && !is_raise && item.kind != "stream_reset" {
            return Ok(None);
        }
        self.events += u64::from(event.pos.is_none());
        match self.output() {
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
                if self.seat.frame == Frame::Chat {
                    let notes = pieces.iter_mut().filter(|piece| piece.channel == Channel::Note);
                    notes.for_each(|piece| piece.text = hint::in_chat(&piece.text, &self.seat.session));
                }
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
        let (data, seq) = (event.data, event.seq);
        Ok(match event.wire_type.as_str() {
            "model_output_completed" => {
                self.text = data["text"].as_str().unwrap_or_default().to_owned();
                self.stop_reason = data["stop_reason"].clone();
                None
            }
            // An answer that was cut so that it does not fit its schema is abandoned, and is no whole output.
            "model_attempt_failed" if data["reason"]["stop_reason"] == "max_tokens" => {
                self.stop_reason = "max_tokens".into();
                None
            }
            "approval_denied" => {
                let why = data["reason"].as_str().unwrap_or_default();
                self.is_denied |= matches!(self.seat.answers, Answers::Rule(Permit::Writes)) && why.ends_with(NOBODY);
                None
            }
            "approval_requested" if seq > self.asked_until => {
                self.asked(&data).await?;
                None
            }
            "turn_completed" => Rest::of("completed", data),
            "turn_failed" => {
                if data["code"] == "auth" && self.output() == Output::Text {
                    models::tell_key_here(self.seat.context, &self.seat.client).await;
                }
                Rest::of("failed", data)
            }
            "turn_canceled" => Rest::of("canceled", data),
            "turn_expired" => Rest::of("expired", data),
            "turn_interrupted" => self.rest_if_interrupted().await?,
            // An unattended turn ends at its budget by itself; an attended one waits until somebody raises it.
            "budget_reached" if self.behind.is_none() => self.rest_if("waiting_budget").await?,
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

    fn listens(&self) -> bool {
        !self.waiting.is_empty() || self.seat.frame == Frame::Chat
    }

    /// A line that was typed. Where the terminal did not show it, it is shown now.
    async fn typed(&mut self, line: &str) -> anyhow::Result<()> {
        if self.seat.frame == Frame::Chat && self.waiting.is_empty() && !line.is_empty() {
            let pieces = self.printer.finish();
            self.show(pieces)?;
            terminal::note(&format!("> {}\n", tamed(line)));
        }
        self.heed(line).await
    }

    async fn heed(&mut self, line: &str) -> anyhow::Result<()> {
        if self.seat.frame == Frame::Chat
            && let Some(slash) = slash::parse(line)
        {
            return self.obey(slash).await;
        }
        if self.waiting.is_empty() {
            return match self.seat.lines.as_mut().is_some_and(|lines| question::is_late(lines, line)) {
                true => Ok(()),
                false => self.steer(line).await,
            };
        }
        match Answer::of(line) {
            Answer::Decided(verdict, scope) => return self.decide(verdict, scope, None).await,
            Answer::Help => question::tell_help(),
            Answer::Unclear => terminal::note("Please type y, n or s > "),
        }
        Ok(())
    }

    /// A command of the chat while the turn is open: those about the turn are done, others wait for its end.
    async fn obey(&mut self, slash: Result<Slash, String>) -> anyhow::Result<()> {
        match (slash, self.waiting.is_empty()) {
            (Ok(Slash::Approve), false) => return self.decide(Verdict::Approve, Scope::Once, None).await,
            (Ok(Slash::Deny(why)), false) => return self.decide(Verdict::Deny, Scope::Once, why).await,
            (Ok(Slash::Cancel), _) if self.canceled_by.is_none() => self.cancel(CanceledBy::Interrupt).await?,
            (Ok(Slash::Exit), _) => {
                self.leaves = Some(self.leaving());
                // Its answer's line is closed by what was typed.
                self.waiting.clear();
            }
            (Ok(Slash::Help), _) => terminal::note(&slash::help()),
            (Ok(aside @ (Slash::Show | Slash::Sessions | Slash::Title(_))), _) => self.turn_aside(aside).await?,
            (Ok(_), _) => terminal::tell("That can be done when the turn is over; /cancel ends it, /exit leaves it."),
            (Err(problem), _) => terminal::note(&format!("{problem}\n")),
        }
        if !self.waiting.is_empty() {
            question::tell_choice();
        }
        Ok(())
    }

    /// What can be done beside the turn. That it is refused does not end the chat.
    async fn turn_aside(&mut self, slash: Slash) -> anyhow::Result<()> {
        let (client, session) = (&self.seat.client, &self.seat.session);
        insist(client, &self.seat.way, || client.health()).await?;
        let done = match slash {
            Slash::Title(title) => asides::entitle(client, session, title).await,
            Slash::Sessions => asides::list(client).await,
            _ => asides::show(client, session).await,
        };
        match done {
            Err(error) if exit::is_passing(&error) => {
                exit::report_in_chat(&error, self.output(), session);
                Ok(())
            }
            done => done,
        }
    }

    fn output(&self) -> Output {
        self.seat.context.output
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
        let taken = insist(&keyed, &self.seat.way, || keyed.send(&self.seat.session, &message)).await?;
        self.seat.own.push(taken.message_id);
        self.faint("  passed on: it is read before the next step");
        Ok(())
    }

    fn faint(&self, text: &str) {
        terminal::note(&format!("{}\n", terminal::stderr_look().paint(Tone::Faint, text)));
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
            self.set_echo();
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
}

/// A script wants only what counts; a person sees an answer grow.
fn answered() -> Answered {
    if std::io::stdout().is_terminal() { Answered::Live } else { Answered::Whole }
}

/// How the reason ends where a call is denied because there is nobody who could say yes.
const NOBODY: &str = "nobody can be asked";
const CANCELED: &str = "Left; the turn is being canceled.\n";

/// What somebody said elsewhere, with who it was, as a line; `None` for all else.
pub fn said_elsewhere(event: &Event, own: &[String], look: &Look) -> Option<String> {
    let data = &event.data;
    let is_own = || own.iter().any(|known| data["message_id"] == **known);
    if event.wire_type != "message_added" || data["role"] != "user" || is_own() {
        return None;
    }
    let text = data["parts"][0]["text"].as_str().unwrap_or("(no text)");
    let who = match &event.actor {
        Some(Actor { kind, id: Some(id), .. }) if kind == "user" => format!("{}, elsewhere:", tamed(id)),
        Some(actor) if actor.kind != "user" => format!("{}:", tamed(&actor.kind)),
        _ => "elsewhere:".into(),
    };
    Some(format!("{} {}\n", look.paint(Tone::Name, &who), tamed(text)))
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

async fn typed(lines: &mut Option<&mut Lines>) -> Heard {
    match lines {
        Some(lines) => lines.next().await,
        None => std::future::pending().await,
    }
}
