//! Which step answers a request. It looks at the request alone, so a daemon that was restarted goes on where the script stood.

use tenure_core::{
    context::{ChatMessage, ModelRequest},
    message::joined_text,
};

use super::script::{Action, After, Script, Step};

#[derive(Debug, PartialEq)]
pub(super) enum Choice<'a> {
    Actions(&'a [Action]),
    Echo,
    /// A review for which the script has no words.
    Approve,
    Nothing,
    /// The step, counted from 1, has no case that fits.
    NoCase {
        step: usize,
    },
}

/// How many replies the request already holds.
pub(super) fn step_index(request: &ModelRequest) -> usize {
    request.messages.iter().filter(|message| matches!(***message, ChatMessage::Assistant { .. })).count()
}

pub(super) fn choose<'a>(script: &'a Script, index: usize, request: &ModelRequest) -> Choice<'a> {
    let at = match (script.after, script.steps.len()) {
        (After::Repeat, count) if count > 0 => index % count,
        _ => index,
    };
    match script.steps.get(at) {
        Some(step) => in_step(step, at + 1, request),
        None if script.after == After::Echo => Choice::Echo,
        None => Choice::Nothing,
    }
}

/// What answers when a change is to be reviewed.
pub(super) fn review<'a>(script: &'a Script, request: &ModelRequest) -> Choice<'a> {
    script.review.as_ref().map_or(Choice::Approve, |step| in_step(step, 0, request))
}

fn in_step<'a>(step: &'a Step, number: usize, request: &ModelRequest) -> Choice<'a> {
    match step {
        Step::Do(actions) => Choice::Actions(actions),
        Step::Attempts(entries) => {
            // Attempts are counted from 1.
            let wanted = (request.meta.attempt as usize).saturating_sub(1);
            entries.get(wanted).or(entries.last()).map_or(Choice::Nothing, |actions| Choice::Actions(actions))
        }
        Step::Cases(cases) => {
            let news = news(request);
            let fits = |seen: &Option<String>| seen.as_ref().is_none_or(|text| news.contains(text.as_str()));
            let case = cases.iter().find(|case| fits(&case.seen));
            case.map_or(Choice::NoCase { step: number }, |case| Choice::Actions(&case.actions))
        }
    }
}

/// The text of everything after the last reply, one message a line.
fn news(request: &ModelRequest) -> String {
    let after_reply = request.messages.iter().rposition(|message| matches!(**message, ChatMessage::Assistant { .. }));
    let mut text = String::new();
    for message in &request.messages[after_reply.map_or(0, |at| at + 1)..] {
        if let ChatMessage::System { parts } | ChatMessage::User { parts } | ChatMessage::Tool { parts, .. } =
            &**message
        {
            text.push_str(&joined_text(parts));
            text.push('\n');
        }
    }
    text
}
