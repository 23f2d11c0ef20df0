//! A client that knows its manners: each command has a key and is sent again until it is answered. It remembers what it was told.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::daemon::{PATIENCE, Setup};

const AGAIN: Duration = Duration::from_millis(5);

/// A command that was answered with success.
#[derive(Debug, Clone)]
pub struct Acknowledged {
    pub path: String,
    pub key: String,
    pub body: Value,
    pub answer: Value,
}

#[derive(Debug, Default)]
pub struct Client {
    pub acknowledged: Vec<Acknowledged>,
}

/// What came of a command.
pub enum Reply {
    Done(Value),
    /// The state forbids it; the code tells why.
    Refused(String),
}

impl Client {
    /// Sends until it is answered, through any number of daemons. A refusal that will pass (503) is no answer.
    pub fn command(&mut self, setup: &Setup, path: &str, key: &str, body: &Value) -> Result<Reply> {
        let deadline = Instant::now() + PATIENCE;
        let mut last = String::from("nothing was tried");
        while Instant::now() < deadline {
            match setup.ask("POST", path, Some(key), Some(body)) {
                Ok(answer) if answer.is_success() => {
                    let answer = answer.json()?;
                    let (path, key) = (path.to_owned(), key.to_owned());
                    let taken = Acknowledged { path, key, body: body.clone(), answer: answer.clone() };
                    self.acknowledged.push(taken);
                    return Ok(Reply::Done(answer));
                }
                Ok(answer) if answer.status == 409 => {
                    return Ok(Reply::Refused(answer.json()?["code"].as_str().unwrap_or_default().to_owned()));
                }
                Ok(answer) if answer.status == 503 => last = answer.to_string(),
                Ok(answer) => bail!("POST {path} was answered with {answer}"),
                Err(error) => last = error.to_string(),
            }
            thread::sleep(AGAIN);
        }
        bail!("POST {path} was never answered; at last: {last}")
    }

    /// A command that must be taken; gives a field of the answer.
    pub fn must(&mut self, setup: &Setup, path: &str, key: &str, body: &Value, field: &str) -> Result<String> {
        match self.command(setup, path, key, body)? {
            Reply::Done(answer) => {
                Ok(answer[field].as_str().with_context(|| format!("no {field} in {answer}"))?.to_owned())
            }
            Reply::Refused(code) => bail!("POST {path} was refused: {code}"),
        }
    }
}
