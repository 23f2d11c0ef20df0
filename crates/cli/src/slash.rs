//! What can be typed at the prompt beside messages.

/// A command with the rest of its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slash {
    Help,
    Exit,
    Show,
    Sessions,
    /// Another one, or which it is.
    Model(Option<String>),
    Title(String),
    Fork,
    New,
    Approve,
    /// With why, if that was said.
    Deny(Option<String>),
    Cancel,
    Compact,
    Undo,
    Resume,
    Retry,
}

/// Name, what follows it, what it does.
const ALL: [(&str, &str, &str); 15] = [
    ("/help", "", "this list"),
    ("/show", "", "what this session is and what it waits for"),
    ("/sessions", "", "the newest sessions"),
    ("/new", "", "begin another session; this one stays"),
    ("/fork", "", "go on in a copy of this session; this one stays as it is"),
    ("/model", "NAME", "the model of the turns to come; without a name, which it is"),
    ("/title", "TEXT", "call this session something else"),
    ("/approve", "", "say yes to the call that waits"),
    ("/deny", "WHY", "say no to it; why is told to the agent, and may be left out"),
    ("/cancel", "", "cancel the open turn"),
    ("/compact", "", "summarize the older part of the conversation for the model"),
    ("/undo", "", "take back what the last turn did to files"),
    ("/resume", "", "let an interrupted turn go on"),
    ("/retry", "", "run the last turn again, which failed or was canceled"),
    ("/exit", "", "leave; so does Ctrl-D"),
];

pub fn names() -> impl Iterator<Item = String> {
    ALL.iter().map(|(name, _, _)| (*name).to_owned())
}

pub fn help() -> String {
    let mut text = String::new();
    for (name, rest, what) in ALL {
        text.push_str(&format!("  {:<14} {what}\n", format!("{name} {rest}")));
    }
    text.push_str(
        "\nEverything else is a message. A line that ends in \\ goes on in the next one.\n\
         While the agent works, what you type is passed on to it; Ctrl-C cancels its\n\
         turn, and a second one leaves it to itself.\n",
    );
    text
}

/// `None` for what is a message: a path, say, also begins with a slash.
pub fn parse(line: &str) -> Option<Result<Slash, String>> {
    let (name, rest) = line.split_once(char::is_whitespace).map_or((line, ""), |(name, rest)| (name, rest.trim()));
    let word = name.strip_prefix('/')?;
    if word.is_empty() || !word.chars().all(|c| c.is_ascii_lowercase()) {
        return None;
    }
    let alone = |slash: Slash| match rest {
        "" => Ok(slash),
        rest => Err(format!("/{word} takes nothing after it, and there is '{rest}'.")),
    };
    let with = |slash: fn(String) -> Slash, what: &str| match rest {
        "" => Err(format!("/{word} needs {what} after it.")),
        rest => Ok(slash(rest.to_owned())),
    };
    Some(match word {
        "help" => alone(Slash::Help),
        "exit" | "quit" => alone(Slash::Exit),
        "show" => alone(Slash::Show),
        "sessions" => alone(Slash::Sessions),
        "fork" => alone(Slash::Fork),
        "new" => alone(Slash::New),
        "approve" => alone(Slash::Approve),
        "deny" => Ok(Slash::Deny((!rest.is_empty()).then(|| rest.to_owned()))),
        "cancel" => alone(Slash::Cancel),
        "compact" => alone(Slash::Compact),
        "undo" => alone(Slash::Undo),
        "resume" => alone(Slash::Resume),
        "retry" => alone(Slash::Retry),
        "model" => Ok(Slash::Model((!rest.is_empty()).then(|| rest.to_owned()))),
        "title" => with(Slash::Title, "a title"),
        _ => Err(format!("There is no /{word}; /help lists what there is.")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_word_and_what_follows_it() {
        assert_eq!(parse("/title  two words "), Some(Ok(Slash::Title("two words".into()))));
        assert_eq!(parse("/exit"), Some(Ok(Slash::Exit)));
        assert_eq!(parse("/deny"), Some(Ok(Slash::Deny(None))));
        assert_eq!(parse("/deny not that"), Some(Ok(Slash::Deny(Some("not that".into())))));
        for text in ["hello", "/etc/passwd is what?", "/", "/A", "a /help"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("/model"), Some(Ok(Slash::Model(None))));
        for bad in ["/title", "/exit now", "/hepl"] {
            assert!(parse(bad).unwrap().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_help_fits_a_terminal() {
        let widest = help().lines().map(str::len).max();
        assert!(widest <= Some(80), "{widest:?}");
    }

    #[test]
    fn every_command_of_the_list_is_one() {
        for (name, rest, _) in ALL {
            assert!(parse(format!("{name} {rest}").trim()).unwrap().is_ok(), "{name}");
        }
    }
}
