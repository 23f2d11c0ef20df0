//! What a person is asked about a call that waits, and what counts as an answer.

use std::path::Path;

use serde_json::Value;
use tenure_client::print::{Before, Look, Tone, question};
use tenure_wire::{Scope, Verdict};

use crate::{
    before,
    terminal::{self, Lines},
};

/// What can be typed.
pub const CHOICE: &str = "[y] yes  [n] no  [s] yes, for this session  [?] help";
/// What it means.
const HELP: &str = "  y  yes, this once
  n  no; in a chat /deny WHY also tells the agent why
  s  yes, and so to the same tool with the same subject for the rest of this
     session
  Ctrl-C cancels the turn. Ctrl-D leaves: the question stays, for
  `tenure approve` and for the next chat.
";

/// What a line says to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Decided(Verdict, Scope),
    Help,
    Unclear,
}

impl Answer {
    pub fn of(line: &str) -> Self {
        match line.to_ascii_lowercase().as_str() {
            "y" | "yes" => Answer::Decided(Verdict::Approve, Scope::Once),
            "s" | "session" => Answer::Decided(Verdict::Approve, Scope::Session),
            "n" | "no" => Answer::Decided(Verdict::Deny, Scope::Once),
            "?" | "help" => Answer::Help,
            _ => Answer::Unclear,
        }
    }
}

/// The question for a call, in whole lines. `written` is the file that it writes whole, where it can be looked at.
pub fn asking(call: &Value, written: Option<&Path>, look: &Look) -> String {
    let name = format!("Allow {}?", call["name"].as_str().unwrap_or_default());
    let before = written.map_or(Before::Unseen, before::read);
    format!("{}\n{}", look.paint(Tone::Ask, &name), question(call, &before, look))
}

pub fn tell_choice() {
    terminal::note(&format!("{CHOICE} > "));
}

pub fn tell_help() {
    terminal::note(HELP);
    tell_choice();
}

/// Whether a line is a late answer to a question that went away: such a one is told, and is no message.
pub fn is_late(lines: &mut Lines, line: &str) -> bool {
    let line = line.trim();
    let is_late = !line.is_empty() && lines.may_be_late() && matches!(Answer::of(line), Answer::Decided(..));
    if is_late {
        terminal::tell(&format!("Not sent: '{line}', for the question is gone. Type it again to send it."));
    }
    is_late
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clear_words_are_answers() {
        assert_eq!(Answer::of("Yes"), Answer::Decided(Verdict::Approve, Scope::Once));
        assert_eq!(Answer::of("s"), Answer::Decided(Verdict::Approve, Scope::Session));
        assert_eq!(Answer::of("?"), Answer::Help);
        for unclear in ["", "yy", "nope", "y n"] {
            assert_eq!(Answer::of(unclear), Answer::Unclear, "{unclear}");
        }
    }
}
