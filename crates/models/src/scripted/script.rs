//! What a script holds. It knows neither files nor JSON; `parse` reads it, `choose` and `play` use it.
//!
//! A script file is one JSON object:
//!
//! ```json
//! {
//!   "name": "two steps",
//!   "steps": [
//!     {"do": [{"text": "Let me look.", "chunk": 4, "pause_ms": 20},
//!             {"call": {"name": "read_file", "input": {"path": "README.md"}}}]},
//!     {"attempts": [{"do": [{"error": {"kind": "overloaded", "message": "busy", "retry_after_ms": 50}}]},
//!                   {"do": [{"text": "Second try."}]}]},
//!     {"cases": [{"seen": "failed", "do": [{"text": "I will mend it."}]},
//!                {"do": [{"text": "All is well."}]}]}
//!   ],
//!   "after": "echo"
//! }
//! ```
//!
//! Step *n* answers the request that already holds *n* replies. `attempts` picks by the number of the attempt (the last entry serves all later ones), `cases` by the first `seen` text that occurs in what came after the last reply. `after` says what follows the last step: `echo` (the default), `repeat` (the script begins again) or `stop` (empty replies).
//!
//! Actions, played in order; the closing mark comes by itself:
//!
//! | action | meaning |
//! |---|---|
//! | `{"text": "…", "chunk": 8, "pause_ms": 20}` | text, in fragments of that many characters with a pause between them; without `chunk` in one |
//! | `{"thinking": "…", "signature": "…", "chunk": 8, "pause_ms": 20}` | one block of thinking |
//! | `{"call": {"name": "shell", "input": {}}, "chunk": 8, "pause_ms": 20}` | a tool call; `"arguments": "…"` in place of `input` is sent as it stands, well formed or not |
//! | `{"pause_ms": 500}` | silence |
//! | `{"wait_for": "/path"}` | silence until that file exists: a gate for tests |
//! | `{"keep_alive": true}` | a sign of life with nothing to show |
//! | `{"usage": {"input_tokens": 10, "output_tokens": 2}}` | totals so far; without any, an estimate is sent at the end |
//! | `{"stop_reason": "max_tokens"}` | what the closing mark says; otherwise `tool_use` after calls and `end_turn` without |
//! | `{"error": {"kind": "rate_limited", "message": "…", "retry_after_ms": 50}}` | the call fails here; as the first action, before the stream begins |
//! | `{"drop": true}` | the stream ends without its closing mark |
//! | `{"stall": true}` | nothing ever comes again |
//!
//! Also on top: `"price"` (`{"input_per_mtok_usd": 3, "output_per_mtok_usd": 15}`, or `"unknown"`; free without it), `"takes"` (such as `["image"]`; nothing but text without it), `"patience"` (`{"first_byte_ms": 100, "between_bytes_ms": 50}`), `"window"` (tokens, such as `8000`; without it there is no bound) `"summary"` (what it says when the older part of a context is to be summarized) and `"review"` (a step that answers when a change is to be reviewed, with a text such as `{"verdict": "send_back", "reason": "…"}`; without it every change gets `approve`).

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use tenure_core::model::{Fault, MicroUsd, StopReason, Usage};

use crate::Patience;

/// The default is the script of the plain `scripted` model: no steps, every request is echoed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Script {
    pub name: String,
    pub steps: Vec<Step>,
    pub after: After,
    pub price: Price,
    /// Kinds of message parts besides text.
    pub takes: Vec<String>,
    pub patience: Patience,
    /// Tokens that a request and its reply may have together.
    pub window: Option<u64>,
    /// What it says when it is asked to summarize.
    pub summary: Option<String>,
    /// What it says when it is asked to review a change; without it every change is approved.
    pub review: Option<Step>,
}

/// What one reply is made of.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Do(Vec<Action>),
    /// By attempt, never empty; the last one serves all later attempts.
    Attempts(Vec<Vec<Action>>),
    /// Never empty; the first that fits is played.
    Cases(Vec<Case>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Text that must occur after the last reply; `None` always fits.
    pub seen: Option<String>,
    pub actions: Vec<Action>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Text { text: String, pace: Pace },
    Thinking { text: String, signature: Option<String>, pace: Pace },
    Call { name: String, arguments: String, pace: Pace },
    Pause(Duration),
    WaitFor(PathBuf),
    KeepAlive,
    Usage(Usage),
    StopReason(StopReason),
    Error(Fault),
    Drop,
    Stall,
}

impl Action {
    /// Whether nothing can come after it.
    pub fn is_last(&self) -> bool {
        matches!(self, Action::Error(_) | Action::Drop | Action::Stall)
    }
}

/// How a text is cut into fragments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pace {
    #[default]
    Whole,
    Chunks {
        chars: NonZeroUsize,
        pause: Duration,
    },
}

/// What follows the last step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    #[default]
    Echo,
    Repeat,
    Stop,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Price {
    #[default]
    Free,
    Unknown,
    /// US dollars per million tokens, which is the same number as millionths of a dollar per token.
    Known {
        input: f64,
        output: f64,
    },
}

impl Price {
    /// Cached input is priced like any other: a script has nothing to gain from a third number.
    pub(super) fn cost(self, usage: &Usage) -> Option<MicroUsd> {
        match self {
            Price::Free => Some(0),
            Price::Unknown => None,
            Price::Known { input, output } => {
                let tokens_in = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
                let cost = tokens_in as f64 * input + usage.output_tokens as f64 * output;
                Some(cost.round() as MicroUsd)
            }
        }
    }
}
