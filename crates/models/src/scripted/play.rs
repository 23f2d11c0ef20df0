//! Turns actions into beats, and beats into a stream. A stream owns its beats and starts no task, so dropping it cancels at once.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use futures::stream::{self, BoxStream, StreamExt};
use tenure_core::{
    context::ModelRequest,
    model::{Fault, StopReason},
};

use super::{
    estimate,
    script::{Action, Pace},
};
use crate::ModelEvent;

/// How often a gate is looked at.
const GATE_POLL: Duration = Duration::from_millis(5);

/// One thing that happens on a stream.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Beat {
    Send(ModelEvent),
    Pause(Duration),
    WaitFor(PathBuf),
    Fail(Fault),
    Stall,
}

/// All that happens for these actions, with usage and the closing mark where the script does not end the stream itself.
pub(super) fn beats(actions: &[Action], step: usize, request: &ModelRequest) -> Vec<Beat> {
    let mut score = Score::default();
    for action in actions {
        score.add(action, step);
    }
    if !actions.last().is_some_and(Action::is_last) {
        if !score.usage_sent {
            score.send(ModelEvent::Usage(estimate::usage(request, actions)));
        }
        let usual = if score.calls > 0 { StopReason::ToolUse } else { StopReason::EndTurn };
        score.send(ModelEvent::Done { stop_reason: score.stop_reason.unwrap_or(usual) });
    }
    score.beats
}

#[derive(Default)]
struct Score {
    beats: Vec<Beat>,
    calls: u32,
    usage_sent: bool,
    stop_reason: Option<StopReason>,
}

impl Score {
    fn send(&mut self, event: ModelEvent) {
        self.beats.push(Beat::Send(event));
    }

    fn add(&mut self, action: &Action, step: usize) {
        match action {
            Action::Text { text, pace } => self.fragments(text, *pace, ModelEvent::Text),
            Action::Thinking { text, signature, pace } => {
                self.fragments(text, *pace, ModelEvent::Thinking);
                self.send(ModelEvent::ThinkingDone { signature: signature.clone(), origin: None });
            }
            Action::Call { name, arguments, pace } => self.call(name, arguments, *pace, step),
            Action::Pause(pause) => self.beats.push(Beat::Pause(*pause)),
            Action::WaitFor(path) => self.beats.push(Beat::WaitFor(path.clone())),
            Action::KeepAlive => self.send(ModelEvent::KeepAlive),
            Action::Usage(usage) => {
                self.usage_sent = true;
                self.send(ModelEvent::Usage(*usage));
            }
            Action::StopReason(reason) => self.stop_reason = Some(*reason),
            Action::Error(fault) => self.beats.push(Beat::Fail(fault.clone())),
            Action::Stall => self.beats.push(Beat::Stall),
            // The beats just end.
            Action::Drop => {}
        }
    }

    fn call(&mut self, name: &str, arguments: &str, pace: Pace, step: usize) {
        let index = self.calls;
        self.calls += 1;
        // Unique within a conversation, as vendors' own names are, and the same again when the step is played again.
        let provider_id = Some(format!("scripted_{}_{}", step + 1, index + 1));
        self.send(ModelEvent::CallStarted { index, provider_id, name: name.to_owned() });
        self.fragments(arguments, pace, |text| ModelEvent::CallArguments { index, text });
    }

    fn fragments(&mut self, text: &str, pace: Pace, event: impl Fn(String) -> ModelEvent) {
        match pace {
            Pace::Whole if text.is_empty() => {}
            Pace::Whole => self.send(event(text.to_owned())),
            Pace::Chunks { chars, pause } => {
                for (number, chunk) in chunks(text, chars.get()).enumerate() {
                    if number > 0 && !pause.is_zero() {
                        self.beats.push(Beat::Pause(pause));
                    }
                    self.send(event(chunk.to_owned()));
                }
            }
        }
    }
}

/// Pieces of at most that many characters, never cut inside one.
fn chunks(text: &str, chars: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.char_indices().nth(chars).map_or(rest.len(), |(end, _)| end);
        let (chunk, left) = rest.split_at(end);
        rest = left;
        (!chunk.is_empty()).then_some(chunk)
    })
}

pub(super) fn stream(beats: Vec<Beat>) -> BoxStream<'static, Result<ModelEvent, Fault>> {
    stream::unfold(beats.into_iter(), |mut beats| async move {
        loop {
            match beats.next()? {
                Beat::Send(event) => return Some((Ok(event), beats)),
                Beat::Fail(fault) => return Some((Err(fault), beats)),
                Beat::Pause(pause) => tokio::time::sleep(pause).await,
                Beat::WaitFor(path) => gate(&path).await,
                Beat::Stall => std::future::pending().await,
            }
        }
    })
    .boxed()
}

async fn gate(path: &Path) {
    // What cannot be looked at counts as not there yet.
    while !tokio::fs::try_exists(path).await.unwrap_or(false) {
        tokio::time::sleep(GATE_POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::chunks;

    #[test]
    fn chunks_end_on_character_borders() {
        let cut = |text, chars| chunks(text, chars).collect::<Vec<_>>();
        assert_eq!(cut("", 3), Vec::<&str>::new());
        assert_eq!(cut("abc", 3), ["abc"]);
        assert_eq!(cut("abcd", 3), ["abc", "d"]);
        assert_eq!(cut("żółw 🐢!", 2), ["żó", "łw", " 🐢", "!"]);
    }
}
