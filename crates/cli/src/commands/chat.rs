//! `tenure chat`: a conversation line by line. It follows each turn as `ask` does, and asks for the next message when
//! nothing is open.

pub mod asides;
mod commands;
mod prompt;

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
};

use clap::Args;
use tenure_client::{
    Client, EventStream, Until,
    print::{Detail, Printer, Tone, tamed},
};
use tenure_wire::{Approval, Budgets, Event, OpenTurn, Part, SessionFilter, SessionRow, SessionView};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use super::{Context, models, session};
use crate::{
    before, config,
    daemon::{self, Way},
    exit::{self, Exit},
    follow::{self, Files, Follow, Followed, Frame, Seat},
    limits::{self, Limits},
    lookup,
    models::default_of_daemon,
    permit::{self, Answers, Permit, Review, Seated},
    question,
    slash::{self, Slash},
    standby,
    talk::{self, NewTalk, Sent},
    terminal::{self, Lines, Output},
};
use prompt::{Prompt, Typed};

const PROMPT: &str = "> ";
/// In the data folder: what was typed.
const HISTORY_FILE: &str = "chat-history";
/// How far back a conversation is shown when it is taken up again, in events.
const PAST_EVENTS: u64 = 40;
/// How many of its messages.
const PAST_MESSAGES: usize = 6;

const EXAMPLES: &str = "\
Examples:
    tenure chat                           in the present folder
    tenure chat \"what is in here?\"        with a first message
    tenure chat --continue                go on with the session used last
    tenure chat --session sess_01K9       go on with this one
    printf 'hi\\nbye\\n' | tenure chat      each line is a message

At the prompt /help lists the commands. While the agent works, what you type
is passed on to it; Ctrl-C cancels its turn, and a second one leaves it to
itself. The session stays when you leave: come back with --continue, from any
terminal.";

/// Talk with an agent, line by line
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::CODES))]
pub struct Arguments {
    /// What to say first
    text: Option<String>,
    /// The folder the agent works in, for a new session; with --url its whole path on the daemon's machine
    #[arg(long, default_value = ".", value_name = "DIR", conflicts_with = "session")]
    workspace: PathBuf,
    /// The model, for a new session
    #[arg(long, conflicts_with_all = ["session", "go_on"])]
    model: Option<String>,
    /// Go on with this session, by its id, the beginning of it, a label or a role
    #[arg(long)]
    session: Option<String>,
    /// Go on with the open session of this folder that was used last
    #[arg(long = "continue", short = 'c', conflicts_with = "session")]
    go_on: bool,
    /// What the agent may do, said up front. Without it, it may write inside the workspace; about commands and network
    /// you are asked on a terminal, and elsewhere they are denied
    #[arg(long, value_enum)]
    approve: Option<Permit>,
    /// Who looks at changes of files before they are made, for new sessions
    #[arg(long, value_enum, value_name = "WHO")]
    review: Option<Review>,
    #[command(flatten)]
    limits: Limits,
}

/// The session that is talked with, from its first message on.
struct Open {
    session: String,
    stream: EventStream,
}

struct Chat<'a> {
    context: &'a Context,
    client: Client,
    way: Way,
    open: Option<Open>,
    /// The folder of new sessions; not known while it goes on with one that has its own.
    workspace: Option<String>,
    /// For the next new session.
    model: Option<String>,
    approve: Option<Permit>,
    review: Option<Review>,
    /// What turns of new sessions may use.
    budgets: Option<Budgets>,
    answers: Answers,
    lines: Option<Lines>,
    /// The messages that were said here, by their ids.
    own: Vec<String>,
    /// What somebody else has under way in this session.
    others: Option<Others>,
    interrupts: Signal,
    /// What the last turn would exit with.
    last: Exit,
}

/// Somebody else's turn that is open while the prompt is shown.
#[derive(Default)]
struct Others {
    /// The call that is asked about above the prompt: a yes is for what was seen, so there is one at a time.
    asked: Option<String>,
    /// Requests behind it.
    behind: VecDeque<Event>,
}

/// What to do after a line.
enum Next {
    GoOn,
    Leave(Exit),
}

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let person = context.output == Output::Text && terminal::is_screen();
    let answers = Answers::of(arguments.approve, if person { Seated::Person } else { Seated::Nobody })?;
    let workspace = match arguments.session {
        None => Some(talk::workspace(&arguments.workspace, context.files())?),
        Some(_) => None,
    };
    let client = daemon::connect(context).await?;
    let mut chat = Chat {
        way: Way::restarting(context),
        context,
        client,
        open: None,
        workspace,
        model: arguments.model.clone(),
        approve: arguments.approve,
        review: arguments.review,
        budgets: arguments.limits.of_new(arguments.session.is_some() || arguments.go_on)?,
        answers,
        lines: match person {
            true => Some(Lines::of_terminal()?),
            false => terminal::end_in_order(None).map(|()| None)?,
        },
        own: vec![],
        others: None,
        interrupts: signal(SignalKind::interrupt())?,
        last: Exit::Ok,
    };
    let model = match chat.meant(arguments).await? {
        Some(session) => Some(chat.take_up(session).await?),
        None => arguments.model.clone(),
    };
    models::tell_before(context, model.as_deref());
    match person {
        true => chat.with_person(arguments.text.clone(), model).await,
        false => chat.with_pipe(arguments.text.clone()).await,
    }
}

impl Chat<'_> {
    /// The session to go on with, if one is asked for.
    async fn meant(&self, arguments: &Arguments) -> anyhow::Result<Option<String>> {
        if let Some(given) = &arguments.session {
            return Ok(Some(lookup::session(&self.client, given).await?));
        }
        if !arguments.go_on {
            return Ok(None);
        }
        let filter = SessionFilter { workspace_path: self.workspace.clone(), ..SessionFilter::default() };
        let is_open = |row: &SessionRow| matches!(row.status.as_str(), "active" | "waiting_approval");
        let rows = lookup::sessions_that(&self.client, usize::MAX, &filter, is_open).await?;
        let latest = rows.into_iter().max_by(|a, b| (&a.updated_at, &a.id).cmp(&(&b.updated_at, &b.id)));
        if latest.is_none() {
            terminal::note("There is no open session of this folder: a new one begins.\n");
        }
        Ok(latest.map(|row| row.id))
    }

    /// Goes on with a session: shows where it stands. Its model.
    async fn take_up(&mut self, session: String) -> anyhow::Result<String> {
        let view = self.client.session(&session).await?;
        if self.context.output == Output::Text {
            self.tell_past(&view).await?;
        }
        self.open = Some(self.opened(session, view.seq));
        Ok(view.model)
    }

    fn opened(&self, session: String, seq: u64) -> Open {
        let stream = self.client.events(&session, Until::Forever).after(seq.to_string()).finding(self.way.find.clone());
        Open { session, stream }
    }

    async fn tell_past(&self, view: &SessionView) -> anyhow::Result<()> {
        let from = view.seq.saturating_sub(PAST_EVENTS).to_string();
        let mut past = vec![];
        let mut cursor = Some(from);
        while let Some(at) = cursor {
            let page = self.client.messages(&view.id, Some(&at)).await?;
            past.extend(page.messages);
            cursor = page.next;
        }
        let look = terminal::stderr_look();
        for message in &past[past.len().saturating_sub(PAST_MESSAGES)..] {
            session::spoken(message, look).iter().for_each(|line| terminal::note(&format!("{line}\n")));
        }
        Ok(())
    }

    async fn with_person(mut self, first: Option<String>, model: Option<String>) -> anyhow::Result<Exit> {
        let look = terminal::stderr_look();
        let faint = |text: &str| terminal::note(&format!("{}\n", look.paint(Tone::Faint, text)));
        let with = model.or_else(|| self.model_of_new());
        let with = with.map(|model| format!(" with {}", tamed(&model))).unwrap_or_default();
        match &self.open {
            Some(open) => faint(&format!("{}{with}; /help for help", open.session)),
            None => faint(&format!("A new session{with} begins with your first message; /help for help.")),
        }
        let mut prompt = Prompt::new(self.context.data.join(HISTORY_FILE))?;
        let ended = self.converse(&mut prompt, first).await;
        if let Some(open) = &self.open {
            faint(&format!("The session stays: tenure chat --session {}", open.session));
        }
        ended
    }

    async fn converse(&mut self, prompt: &mut Prompt, first: Option<String>) -> anyhow::Result<Exit> {
        let mut said = first;
        loop {
            if let Some(text) = said.take()
                && let Next::Leave(exit) = self.take_typed(&text).await?
            {
                return Ok(exit);
            }
            if let Followed::Left(exit) = self.follow_open().await? {
                return Ok(exit);
            }
            match self.next_typed(prompt).await {
                Typed::Line(line) if self.lines.as_mut().is_some_and(|lines| question::is_late(lines, &line)) => {}
                Typed::Line(line) => said = Some(line),
                Typed::Interrupt => terminal::note("Ctrl-D or /exit leaves.\n"),
                Typed::End => return Ok(Exit::Ok),
            }
        }
    }

    /// A line from the prompt. While somebody else's turn is open, it is taken as it would be in a turn of one's own.
    async fn take_typed(&mut self, line: &str) -> anyhow::Result<Next> {
        let others = self.others.take();
        match (others, &self.open) {
            (Some(others), Some(_)) if slash::parse(line.trim()).is_none() => {
                let done = self.join(&others, line.trim()).await;
                self.next_after(done)
            }
            _ => self.take_line(line).await,
        }
    }

    /// Follows somebody else's turn from this line on; an exit when the person leaves.
    async fn join(&mut self, others: &Others, line: &str) -> anyhow::Result<Option<Exit>> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let look = || self.client.session(&open.session);
        let view = standby::while_starting(self.context, daemon::insist(&self.client, &self.way, look)).await?;
        let is_asked = |approval: &Approval| others.asked.as_ref() == Some(&approval.tool_call_id);
        let (asked, new): (Vec<_>, Vec<_>) = view.approvals.into_iter().partition(is_asked);
        if let (Some(lines), true) = (&mut self.lines, others.asked.is_some() && asked.is_empty()) {
            lines.expect_late();
            if question::is_late(lines, line) {
                return Ok(None);
            }
        }
        let is_resting = |turn: &OpenTurn| matches!(turn.status.as_str(), "interrupted" | "waiting_budget");
        let Some(turn) = view.turn.filter(|turn| !is_resting(turn)) else {
            return if line.is_empty() { Ok(None) } else { self.send(line.to_owned()).await };
        };
        let seat = seat(self.context, &self.client, &self.way, self.answers, open, &mut self.lines, &mut self.own);
        let mut follow = Follow::new(seat, turn.id);
        follow.joined(asked, line).await?;
        follow.waited(&new).await?;
        let followed = follow.until_rest(&mut open.stream, None, &mut self.interrupts, None).await?;
        Ok(self.took(followed))
    }

    /// Each line is a message; the last turn's end is the end of all.
    async fn with_pipe(mut self, first: Option<String>) -> anyhow::Result<Exit> {
        let (sender, mut lines) = mpsc::channel(1);
        // Reading cannot be given up, and Ctrl-C must be heard meanwhile.
        std::thread::spawn(move || {
            let typed = io::stdin().lines().map_while(Result::ok);
            first.into_iter().chain(typed).try_for_each(|line| sender.blocking_send(line))
        });
        loop {
            let line = tokio::select! {
                line = lines.recv() => line,
                _ = self.interrupts.recv() => return Ok(Exit::Interrupted),
            };
            let Some(line) = line else { return Ok(self.last) };
            if let Next::Leave(exit) = self.take_line(&line).await? {
                return Ok(exit);
            }
            if let Followed::Left(exit) = self.follow_open().await? {
                return Ok(exit);
            }
        }
    }

    /// The next line: one that was typed while the turn ran and has not become a message, or one that is typed now.
    async fn next_typed(&mut self, prompt: &mut Prompt) -> Typed {
        let Some(lines) = &mut self.lines else { return Typed::End };
        if let Some(line) = lines.next_kept() {
            terminal::note(&format!("{PROMPT}{}\n", tamed(&line)));
            return Typed::Line(line);
        }
        prompt.show(PROMPT, lines.take_begun());
        let typed = self.typed_at(prompt).await;
        if let Some(lines) = &mut self.lines {
            lines.after_prompt();
        }
        typed
    }

    /// Waits for the line at the prompt, and shows above it what others do meanwhile.
    async fn typed_at(&mut self, prompt: &mut Prompt) -> Typed {
        let look = terminal::stdout_look();
        let mut printer = Printer::new(look, Detail::Story);
        loop {
            let item = tokio::select! {
                typed = prompt.next() => return typed,
                item = next_of(&mut self.open) => item,
            };
            let Ok(event) = serde_json::from_str::<Event>(&item) else { continue };
            // Fragments would tear the line apart; whole texts follow them.
            if event.pos.is_some() {
                continue;
            }
            let mut shown = follow::said_elsewhere(&event, &self.own, &look).unwrap_or_default();
            let asks = event.wire_type == "approval_requested" && matches!(self.answers, Answers::Person);
            let pieces = if asks { printer.finish() } else { [printer.event(&event), printer.finish()].concat() };
            shown.extend(pieces.into_iter().map(|piece| piece.text));
            self.keep_track(&event);
            shown.push_str(&self.ask_next().await);
            prompt.print_above(shown);
        }
    }

    /// The next question of somebody else's turn, as it is put above the prompt; nothing while one is there.
    async fn ask_next(&mut self) -> String {
        let Some(others) = self.others.as_mut().filter(|others| others.asked.is_none()) else { return String::new() };
        let Some(event) = others.behind.pop_front() else { return String::new() };
        others.asked = Some(call_of(&event).to_owned());
        let mut written = None;
        if let (Files::Here, Some(path)) = (self.context.files(), before::written_by(&event.data))
            && let Ok(view) = self.client.session(&event.session_id).await
        {
            written = Some(Path::new(&view.workspace_path).join(path));
        }
        let asking = question::asking(&event.data, written.as_deref(), &terminal::stderr_look());
        format!("{asking}{}\n", question::CHOICE)
    }

    /// What of somebody else is open after this event.
    fn keep_track(&mut self, event: &Event) {
        match event.wire_type.as_str() {
            "turn_started" | "turn_resumed" | "budget_raised" => self.others = Some(Others::default()),
            // It may have started a turn: what is typed next is taken after a look.
            "message_added" => {
                self.others.get_or_insert_default();
            }
            "approval_requested" if matches!(self.answers, Answers::Person) => {
                self.others.get_or_insert_default().behind.push_back(event.clone());
            }
            "approval_granted" | "approval_denied" | "approval_expired" => self.forget_asked(Some(call_of(event))),
            "cancel_requested" => self.forget_asked(None),
            "turn_completed" | "turn_failed" | "turn_canceled" | "turn_expired" | "turn_interrupted"
            | "budget_reached" => {
                self.forget_asked(None);
                self.others = None;
            }
            _ => {}
        }
    }

    /// This call needs no answer any more, or none does; what is typed for one that was asked about is no message.
    fn forget_asked(&mut self, call: Option<&str>) {
        let Some(others) = &mut self.others else { return };
        let is_meant = |of: &str| call.is_none_or(|call| call == of);
        others.behind.retain(|event| !is_meant(call_of(event)));
        if others.asked.take_if(|asked| is_meant(asked)).is_some()
            && let Some(lines) = &mut self.lines
        {
            lines.expect_late();
        }
    }

    async fn take_line(&mut self, line: &str) -> anyhow::Result<Next> {
        if line.trim().is_empty() {
            return Ok(Next::GoOn);
        }
        let done = match slash::parse(line.trim()) {
            None => return self.say(line).await,
            Some(Err(problem)) => {
                terminal::note(&format!("{problem}\n"));
                return Ok(Next::GoOn);
            }
            Some(Ok(Slash::Exit)) => return Ok(Next::Leave(Exit::Ok)),
            Some(Ok(Slash::Retry)) if self.open.is_some() => {
                let done = self.retry().await;
                return self.next_after(done);
            }
            Some(Ok(slash)) => self.obey(slash).await,
        };
        self.go_on_after(done)
    }

    /// What the daemon refuses is told, and the chat goes on; what breaks it ends it.
    fn go_on_after(&mut self, done: anyhow::Result<()>) -> anyhow::Result<Next> {
        match done {
            Err(error) if exit::is_passing(&error) => {
                let error = if self.context.remote.is_some() { exit::of_elsewhere(error) } else { error };
                let session = self.open.as_ref().map_or("SESSION", |open| &open.session);
                self.last = exit::report_in_chat(&error, self.context.output, session);
                Ok(Next::GoOn)
            }
            done => done.map(|()| Next::GoOn),
        }
    }

    async fn say(&mut self, text: &str) -> anyhow::Result<Next> {
        let done = self.send(text.to_owned()).await;
        self.next_after(done)
    }

    fn next_after(&mut self, done: anyhow::Result<Option<Exit>>) -> anyhow::Result<Next> {
        match done {
            Ok(Some(exit)) => Ok(Next::Leave(exit)),
            Ok(None) => Ok(Next::GoOn),
            Err(error) => self.go_on_after(Err(error)),
        }
    }

    /// Sends a message and follows its turn; an exit when the person leaves.
    async fn send(&mut self, text: String) -> anyhow::Result<Option<Exit>> {
        let text = talk::checked(text)?;
        if self.open.is_none() {
            let session = self.begin(&text).await?;
            self.open = Some(self.opened(session, 0));
        }
        let Some(open) = &mut self.open else { return Ok(None) };
        let parts = vec![Part::text(text)];
        let sending = talk::send(&self.client, &self.way, &open.session, parts, &mut self.interrupts);
        let sent = standby::while_starting(self.context, sending).await.inspect_err(tell_unsent)?;
        let Sent::Taken { turn, message, interrupted } = sent else { return Ok(Some(Exit::Interrupted)) };
        self.own.push(message);
        let seat = seat(self.context, &self.client, &self.way, self.answers, open, &mut self.lines, &mut self.own);
        let follow = Follow::new(seat, turn);
        let followed = follow.until_rest(&mut open.stream, None, &mut self.interrupts, interrupted).await?;
        Ok(self.took(followed))
    }

    /// Runs the last turn again and follows it, also where it has ended before anybody could look.
    async fn retry(&mut self) -> anyhow::Result<Option<Exit>> {
        self.reach().await?;
        let Some(open) = &mut self.open else { return Ok(None) };
        let turn = session::again(&self.client, &open.session).await?.turn_id;
        let seat = seat(self.context, &self.client, &self.way, self.answers, open, &mut self.lines, &mut self.own);
        let follow = Follow::new(seat, turn);
        let followed = follow.until_rest(&mut open.stream, None, &mut self.interrupts, None).await?;
        Ok(self.took(followed))
    }

    /// The model of a session that is begun now, where it can be told.
    fn model_of_new(&self) -> Option<String> {
        let of_daemon = || default_of_daemon(&self.context.data, &config::read(&self.context.data).ok()?);
        self.model.clone().or_else(|| self.context.remote.is_none().then(of_daemon).flatten())
    }

    async fn begin(&self, text: &str) -> anyhow::Result<String> {
        let workspace = match &self.workspace {
            Some(workspace) => workspace.clone(),
            None => talk::workspace(Path::new("."), self.context.files())?,
        };
        let approval = permit::policy(self.approve, self.answers);
        let (model, budgets) = (self.model.clone(), self.budgets.clone());
        let review = self.review.map(Review::policy);
        let new = NewTalk { workspace: &workspace, model, approval, output_schema: None, budgets, review };
        let beginning = talk::begin(&self.client, &self.way, &new, text);
        standby::while_starting(self.context, beginning).await.inspect_err(tell_unsent)
    }

    fn took(&mut self, followed: Followed) -> Option<Exit> {
        match followed {
            Followed::Left(exit) => Some(exit),
            Followed::Rested(exit) => {
                self.last = exit;
                None
            }
        }
    }

    /// Follows what is open or queued: somebody else's, or a message that came too late for its turn.
    async fn follow_open(&mut self) -> anyhow::Result<Followed> {
        loop {
            let Some(open) = &mut self.open else { return Ok(Followed::Rested(self.last)) };
            let look = || self.client.session(&open.session);
            let looking = daemon::insist(&self.client, &self.way, look);
            let view = standby::while_starting(self.context, looking).await?;
            let Some(turn) = &view.turn else { return Ok(Followed::Rested(self.last)) };
            match turn.status.as_str() {
                "interrupted" => {
                    terminal::tell("A turn was interrupted: /resume lets it go on, a message takes its place.");
                    return Ok(Followed::Rested(self.last));
                }
                "waiting_budget" => {
                    limits::tell_waiting(&view, "The turn waits at its budget");
                    return Ok(Followed::Rested(self.last));
                }
                _ => {}
            }
            let seat = seat(self.context, &self.client, &self.way, self.answers, open, &mut self.lines, &mut self.own);
            let mut follow = Follow::new(seat, turn.id.clone());
            follow.waited(&view.approvals).await?;
            let followed = follow.until_rest(&mut open.stream, None, &mut self.interrupts, None).await?;
            if let Some(exit) = self.took(followed) {
                return Ok(Followed::Left(exit));
            }
        }
    }
}

fn seat<'l>(
    context: &'l Context,
    client: &Client,
    way: &Way,
    answers: Answers,
    open: &Open,
    lines: &'l mut Option<Lines>,
    own: &'l mut Vec<String>,
) -> Seat<'l> {
    Seat {
        context,
        client: client.clone(),
        way: way.clone(),
        session: open.session.clone(),
        answers,
        frame: Frame::Chat,
        lines: lines.as_mut(),
        own,
    }
}

fn call_of(event: &Event) -> &str {
    event.data["tool_call_id"].as_str().unwrap_or_default()
}

/// For a message that no daemon has taken.
fn tell_unsent(error: &anyhow::Error) {
    if !exit::is_passing(error) {
        terminal::note("The message was not sent, as far as can be told from here.\n");
    }
}

/// The next event of others; waits for ever where there is none to be had.
async fn next_of(open: &mut Option<Open>) -> String {
    let Some(open) = open else { return std::future::pending().await };
    loop {
        match open.stream.next().await {
            Some(Ok(item)) => return item.json,
            // A daemon that was gone for long may come back all the same.
            Some(Err(error)) if error.may_pass() => {}
            _ => return std::future::pending().await,
        }
    }
}
