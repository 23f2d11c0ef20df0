//! What is said when no script has anything to say: plainly that nobody is there, and a short form of what was asked.

use std::{num::NonZeroUsize, time::Duration};

use tenure_core::{
    context::{ChatMessage, ModelRequest},
    message::joined_text,
};

use super::script::{Action, Pace, Script};

/// How much of the question is said back.
const QUOTE_CHARS_MAX: usize = 160;
/// Small enough to be seen to stream.
const CHUNK_CHARS: NonZeroUsize = NonZeroUsize::new(6).unwrap();
const CHUNK_PAUSE: Duration = Duration::from_millis(12);

pub(super) fn reply(script: &Script, request: &ModelRequest) -> Vec<Action> {
    let pace = Pace::Chunks { chars: CHUNK_CHARS, pause: CHUNK_PAUSE };
    vec![Action::Text { text: words(script, request), pace }]
}

fn words(script: &Script, request: &ModelRequest) -> String {
    let asked = match short(&asked(request)) {
        quote if quote.is_empty() => "You wrote no text.".to_owned(),
        quote => format!("You wrote: “{quote}”"),
    };
    if script.name.is_empty() {
        format!(
            "I am the scripted stand-in of Tenure: no model, no network, no intelligence. {asked}\n\n\
             `tenure models` tells how to get a real one: with a vendor's key, or a server on this machine. To see \
             tools at work, run `tenure demo`, or play a script of your own with `scripted:/path/to/script.json`."
        )
    } else {
        format!("The script “{}” has nothing more to say; it has no intelligence of its own. {asked}", script.name)
    }
}

/// The last thing a person said.
fn asked(request: &ModelRequest) -> String {
    let of_user = |message: &std::sync::Arc<ChatMessage>| match &**message {
        ChatMessage::User { parts } => Some(joined_text(parts)),
        ChatMessage::System { .. } | ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => None,
    };
    request.messages.iter().rev().find_map(of_user).unwrap_or_default()
}

/// On one line, and not long.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(QUOTE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::{QUOTE_CHARS_MAX, short};

    #[test]
    fn quotes_are_cut_on_character_borders() {
        assert_eq!(short("  two\n\twords "), "two words");
        assert_eq!(short(&"é".repeat(QUOTE_CHARS_MAX)), "é".repeat(QUOTE_CHARS_MAX));
        assert_eq!(short(&"é".repeat(QUOTE_CHARS_MAX + 1)), "é".repeat(QUOTE_CHARS_MAX) + "…");
    }
}
