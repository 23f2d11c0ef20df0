//! Where a person types the next message: a line that can be edited, with a history, while events of others are shown
//! above it. It knows nothing of sessions.

use std::{
    path::{Path, PathBuf},
    sync::mpsc as wait,
};

use rustyline::{
    Behavior, Config, Context, Editor, ExternalPrinter, Helper,
    completion::Completer,
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::FileHistory,
    validate::{ValidationContext, ValidationResult, Validator},
};
use tokio::sync::mpsc;

use crate::slash;

/// How many lines are remembered.
const HISTORY_LINES_MAX: usize = 1000;

/// What came from the prompt.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the terminal is gone.
    End,
}

/// The editor waits for keys on a thread of its own, and only while it is asked to.
pub struct Prompt {
    ask: wait::Sender<Asked>,
    typed: mpsc::UnboundedReceiver<Typed>,
    above: Box<dyn ExternalPrinter + Send>,
}

/// What the editor is to show.
struct Asked {
    prompt: &'static str,
    begun: String,
}

impl Prompt {
    /// `history` is the file that lines are remembered in.
    pub fn new(history: PathBuf) -> anyhow::Result<Self> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)?
            .history_ignore_dups(true)?
            .history_ignore_space(true)
            .auto_add_history(true)
            .behavior(Behavior::Stdio)
            .build();
        let mut editor: Editor<Words, FileHistory> = Editor::with_config(config)?;
        editor.set_helper(Some(Words));
        // There may be none yet, or one that cannot be read: a chat works without.
        let _ = editor.load_history(&history);
        let above = Box::new(editor.create_external_printer()?);
        let (ask, asked) = wait::channel::<Asked>();
        let (sender, typed) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            while let Ok(asked) = asked.recv() {
                if sender.send(read(&mut editor, &asked, &history)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { ask, typed, above })
    }

    /// Shows the prompt and what is typed already; `next` gives what becomes of it.
    pub fn show(&self, prompt: &'static str, begun: String) {
        let _ = self.ask.send(Asked { prompt, begun });
    }

    /// What was typed at the prompt that is shown. May be dropped while it waits.
    pub async fn next(&mut self) -> Typed {
        self.typed.recv().await.unwrap_or(Typed::End)
    }

    /// Shows whole lines above the prompt.
    pub fn print_above(&mut self, lines: String) {
        if !lines.is_empty() {
            let _ = self.above.print(lines);
        }
    }
}

fn read(editor: &mut Editor<Words, FileHistory>, asked: &Asked, history: &Path) -> Typed {
    match editor.readline_with_initial(asked.prompt, (&asked.begun, "")) {
        Ok(line) => {
            let _ = editor.append_history(history);
            Typed::Line(joined(&line))
        }
        Err(ReadlineError::Interrupted) => Typed::Interrupt,
        Err(_) => Typed::End,
    }
}

/// A line that goes on in the next one, as it was meant.
fn joined(line: &str) -> String {
    line.replace("\\\n", "\n")
}

/// Completes commands, and lets a line that ends in a backslash go on.
struct Words;

impl Helper for Words {}

impl Highlighter for Words {}

impl Hinter for Words {
    type Hint = String;
}

impl Completer for Words {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let begun = &line[..pos];
        Ok((0, slash::names().filter(|name| begun.starts_with('/') && name.starts_with(begun)).collect()))
    }
}

impl Validator for Words {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match context.input().ends_with('\\') {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_at_the_end_joins_two_lines() {
        assert_eq!(joined("one\\\ntwo"), "one\ntwo");
        assert_eq!(joined("C:\\dir"), "C:\\dir");
    }
}
