//! What the demo does, step by step, as a client of the daemon: ask, watch, answer, crash, resume.

use std::{path::PathBuf, time::Duration};

use tenure_client::{
    Client, EventStream, Item, Until,
    print::{Detail, Printer, Tone},
};
use tenure_wire::{Approve, CreateSession, Event, Part, Scope, SendMessage, Verdict};

use super::{
    Stage,
    child::Daemon,
    report::{Report, Seen},
};
use crate::{
    daemon::{Way, finder_here, insist},
    exit::Problem,
    terminal::{self, Output},
};

const MODEL: &str = "scripted:demo";
const REQUEST: &str = "Publish the first release, note it in a changelog, and let greet.sh greet people by name.";
/// How long the daemon stays dead, so that one can see it.
const DEAD_FOR: Duration = Duration::from_millis(700);

pub struct Story {
    output: Output,
    printer: Printer,
    data: PathBuf,
    repo: PathBuf,
    folder: PathBuf,
    client: Client,
    way: Way,
    stream: EventStream,
    session: String,
    turn: String,
    seen: Seen,
}

impl Story {
    /// Starts the daemon, makes a session and sends the request.
    pub async fn begin(stage: &Stage, output: Output, daemon: &mut Daemon) -> anyhow::Result<Story> {
        let (client, pid) = daemon.start().await?;
        let way = Way::waiting(finder_here(&stage.data));
        let create = CreateSession {
            workspace_path: stage.repo.to_string_lossy().into_owned(),
            model: Some(MODEL.into()),
            title: Some("Demo".into()),
            ..CreateSession::default()
        };
        let session = client.create(&create).await?.session_id;
        let stream = client.events(&session, Until::Forever).finding(way.find.clone());
        let message = SendMessage { parts: vec![Part::text(REQUEST)], ..SendMessage::default() };
        let turn = client.send(&session, &message).await?.turn_id;
        let turn = turn.ok_or_else(|| Problem::failed("no_turn", "the daemon started no turn", ""))?;
        let story = Story {
            output,
            printer: Printer::new(terminal::stdout_look(), Detail::Story),
            data: stage.data.clone(),
            repo: stage.repo.clone(),
            folder: stage.folder.clone(),
            client,
            way,
            stream,
            session,
            turn,
            seen: Seen::default(),
        };
        let address = story.client.target().base_url().to_owned();
        story.say(&format!("A daemon runs at {address} (process {pid}), in {}.", story.folder.display()))?;
        story.say(&format!("The demo asks: {REQUEST}"))?;
        Ok(story)
    }

    /// Follows the turn until the release has taken effect and is still running.
    pub async fn until_the_release_runs(&mut self) -> anyhow::Result<()> {
        let mut release: Option<String> = None;
        loop {
            let event = self.next().await?;
            let call = event.data["tool_call_id"].as_str();
            match event.wire_type.as_str() {
                "approval_requested" => self.approve(&event).await?,
                "tool_call_started" if event.data["name"] == "shell" => release = call.map(str::to_owned),
                "tool_output_delta" if release.is_some() && call == release.as_deref() && self.is_released() => {
                    return Ok(());
                }
                kind if is_end(kind) => {
                    return Err(Problem::failed("demo", format!("the turn ended too soon ({kind})"), "").into());
                }
                _ => {}
            }
        }
    }

    fn is_released(&self) -> bool {
        std::fs::read_to_string(self.repo.join("releases.log")).is_ok_and(|log| !log.is_empty())
    }

    /// Kills the daemon and starts another one on the same folder.
    pub async fn crash(&mut self, daemon: &mut Daemon) -> anyhow::Result<()> {
        daemon.kill()?;
        self.close_line()?;
        self.say("kill -9: the daemon is dead, in the middle of release.sh.")?;
        tokio::time::sleep(DEAD_FOR).await;
        let (_, pid) = daemon.start().await?;
        let cursor = self.stream.cursor().unwrap_or("0").to_owned();
        self.say(&format!("A new daemon runs (process {pid}). The stream goes on after its cursor, {cursor}."))?;
        self.seen.cut_at(cursor);
        Ok(())
    }

    /// Resumes the turn once it is known to be interrupted, and follows it to its end.
    pub async fn until_the_end(&mut self) -> anyhow::Result<()> {
        loop {
            let event = self.next().await?;
            match event.wire_type.as_str() {
                "approval_requested" => self.approve(&event).await?,
                "turn_interrupted" => self.resume().await?,
                kind if is_end(kind) => return self.close_line(),
                _ => {}
            }
        }
    }

    /// Compares what was seen with the log and the workspace.
    pub async fn checked(mut self) -> anyhow::Result<Report> {
        let mut history = Seen::default();
        let mut stream = self.client.events(&self.session, Until::Present).finding(self.way.find.clone());
        while let Some(item) = stream.next().await {
            history.push(&item?)?;
        }
        self.seen.connections(self.stream.connections());
        let log = self.data.join("sessions").join(&self.session).join("events.ndjson");
        let releases = std::fs::read_to_string(self.repo.join("releases.log")).unwrap_or_default();
        Ok(Report::of(&self.seen, &history, &releases, self.session, self.folder, self.data, self.repo, log))
    }

    async fn next(&mut self) -> anyhow::Result<Event> {
        let ended = || Problem::failed("demo", "the stream ended", "");
        let item: Item = self.stream.next().await.ok_or_else(ended)??;
        let event = self.seen.push(&item)?;
        if self.output == Output::Text {
            terminal::write_all(&self.printer.event(&event))?;
        }
        Ok(event)
    }

    /// The default policy asks before commands run; the demo says yes. To verification it says so for the session, as a person would.
    async fn approve(&mut self, event: &Event) -> anyhow::Result<()> {
        let scope = if event.data["origin"] == "verify_policy" { Scope::Session } else { Scope::Once };
        let answer = Approve {
            turn_id: Some(self.turn.clone()),
            tool_call_id: event.data["tool_call_id"].as_str().unwrap_or_default().to_owned(),
            action: Verdict::Approve,
            reason: Some("the demo says yes".into()),
            scope: Some(scope),
            ..Approve::default()
        };
        insist(&self.client, &self.way, || self.client.approve(&self.session, &answer)).await?;
        Ok(())
    }

    async fn resume(&mut self) -> anyhow::Result<()> {
        self.close_line()?;
        for (name, class) in self.seen.classes() {
            let means = match class.as_str() {
                "finished" => "finished: its result is kept",
                "not_started" => "not started: it will run now",
                _ => "unknown: it will not run again; the agent is told so",
            };
            self.say(&format!("  {name} is {means}"))?;
        }
        self.say("An unknown call is for a person to look at first. The demo looks, and resumes the turn.")?;
        insist(&self.client, &self.way, || self.client.resume(&self.session, &self.turn)).await?;
        Ok(())
    }

    fn say(&self, line: &str) -> anyhow::Result<()> {
        if self.output == Output::Text {
            let look = terminal::stdout_look();
            terminal::print_line(&look.paint(Tone::Ask, &format!("── {line}")))?;
        }
        Ok(())
    }

    fn close_line(&mut self) -> anyhow::Result<()> {
        let pieces = self.printer.finish();
        if self.output == Output::Text {
            terminal::write_all(&pieces)?;
        }
        Ok(())
    }
}

fn is_end(kind: &str) -> bool {
    matches!(kind, "turn_completed" | "turn_failed" | "turn_canceled" | "turn_expired")
}
