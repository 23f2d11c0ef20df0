//! `tenure approve` and `tenure deny`: answer a call that waits for a yes or no.

use clap::{Args, ValueEnum};
use tenure_client::print::{subject, tamed};
use tenure_core::ids::CallId;
use tenure_wire::{Approval, Approve, Scope, Verdict};

use super::Context;
use crate::{
    daemon,
    exit::{Exit, Problem},
    lookup, terminal,
};

/// Answer a tool call that waits for a yes or no
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n    tenure approve sess_01K9\n    tenure approve sess_01K9 call_01K9 --scope session\n    \
                        tenure deny sess_01K9 --reason \"not on a Friday\""
)]
pub struct Arguments {
    /// The session, by its id, the beginning of it, a label or a role
    session: String,
    /// The call, by its id or the beginning of it [default: the only one that waits]
    call: Option<String>,
    /// How far the answer reaches
    #[arg(long, value_enum, default_value_t = Reach::Once)]
    scope: Reach,
    /// Why; the log keeps it, and the model is told when it is a no
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Reach {
    /// This call alone
    Once,
    /// The same call for the rest of the session
    Session,
    /// The same call in every session from now on
    Always,
}

impl From<Reach> for Scope {
    fn from(reach: Reach) -> Self {
        match reach {
            Reach::Once => Scope::Once,
            Reach::Session => Scope::Session,
            Reach::Always => Scope::Always,
        }
    }
}

pub async fn run(context: &Context, arguments: &Arguments, verdict: Verdict) -> anyhow::Result<Exit> {
    let client = daemon::connect(context).await?;
    let session = lookup::session(&client, &arguments.session).await?;
    let waiting = client.session(&session).await?.approvals;
    let tool_call_id = choose(&waiting, arguments.call.as_deref())?;
    let answer = Approve {
        tool_call_id,
        action: verdict,
        reason: arguments.reason.clone(),
        scope: Some(arguments.scope.into()),
        ..Approve::default()
    };
    let answered = client.approve(&session, &answer).await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&answered)?,
        terminal::Output::Text => {
            let verb = if verdict == Verdict::Approve { "approved" } else { "denied" };
            terminal::print_line(&format!("{} is {verb}.", answered.tool_call_id))?;
        }
    }
    Ok(Exit::Ok)
}

/// The call that is meant. The whole id of one that does not wait is passed on: the daemon knows what became of it.
fn choose(waiting: &[Approval], given: Option<&str>) -> Result<String, Problem> {
    match (given, waiting) {
        (Some(given), _) => {
            let ids: Vec<&str> = waiting.iter().map(|approval| approval.tool_call_id.as_str()).collect();
            match lookup::only(&ids, given, "waiting call")? {
                Some(call) => Ok(call.to_owned()),
                None if given.parse::<CallId>().is_ok() => Ok(given.to_owned()),
                None => {
                    let hint = "`tenure session show SESSION` lists what waits";
                    Err(Problem::refused("unknown_call", format!("no waiting call begins with '{given}'"), hint))
                }
            }
        }
        (None, [only]) => Ok(only.tool_call_id.clone()),
        (None, []) => Err(Problem::refused(
            "not_waiting",
            "nothing waits for an answer in this session",
            "`tenure session show SESSION` tells what it does",
        )),
        (None, several) => {
            let lines: Vec<String> = several.iter().map(listed).collect();
            let message = format!("{} calls wait for an answer:\n  {}", several.len(), lines.join("\n  "));
            Err(Problem::usage(message, "name one of them after the session: tenure approve SESSION CALL"))
        }
    }
}

fn listed(approval: &Approval) -> String {
    let about = subject(&serde_json::json!({"input": approval.input, "subject": approval.subject}));
    format!("{}  {}  {}", approval.tool_call_id, approval.name, tamed(&about.replace('\n', "⏎")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval(id: &str) -> Approval {
        Approval {
            turn_id: "turn_1".into(),
            tool_call_id: id.into(),
            name: "shell".into(),
            kind: "exec".into(),
            input: serde_json::json!({"command": "make"}),
            subject: "make".into(),
            origin: "model".into(),
            expires_at: None,
        }
    }

    fn chosen(ids: &[&str], given: Option<&str>) -> Result<String, String> {
        let waiting: Vec<Approval> = ids.iter().map(|id| approval(id)).collect();
        choose(&waiting, given).map_err(|problem| problem.to_string())
    }

    #[test]
    fn the_only_call_need_not_be_named() {
        assert_eq!(chosen(&["call_a"], None), Ok("call_a".into()));
        assert_eq!(chosen(&["call_ab", "call_b"], Some("call_a")), Ok("call_ab".into()));
        let old = "call_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        assert_eq!(chosen(&[], Some(old)), Ok(old.into()));
        assert_eq!(chosen(&["call_a"], Some("call_b")), Err("no waiting call begins with 'call_b'".into()));
        assert_eq!(chosen(&[], None), Err("nothing waits for an answer in this session".into()));
        let several = "2 calls wait for an answer:\n  call_a  shell  make\n  call_b  shell  make";
        assert_eq!(chosen(&["call_a", "call_b"], None), Err(several.into()));
    }
}
