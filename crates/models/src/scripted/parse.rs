//! Reads a script and says exactly what is wrong with a bad one. Steps and actions are read one by one, so that a problem can name its place; it never plays anything.

mod action;

use std::time::Duration;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::script::{Action, After, Case, Price, Script, Step};
use crate::Patience;

/// What is wrong with a script, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{problem}")]
pub struct Problem {
    /// Such as `step 2, action 1: `, or empty for the script as a whole.
    place: String,
    problem: String,
}

impl Problem {
    fn whole(problem: impl Into<String>) -> Self {
        Self { place: String::new(), problem: problem.into() }
    }

    fn at(place: &str, problem: impl Into<String>) -> Self {
        Self { place: format!("{place}: "), problem: problem.into() }
    }
}

/// Reads the JSON text of a script.
pub fn parse(text: &str) -> Result<Script, Problem> {
    let raw: RawScript = serde_json::from_str(text).map_err(|error| Problem::whole(error.to_string()))?;
    if raw.steps.is_empty() && raw.after == After::Repeat {
        return Err(Problem::whole("`after` is `repeat`, but there is no step to repeat"));
    }
    let steps = raw.steps.into_iter().enumerate().map(|(index, value)| step(value, &format!("step {}", index + 1)));
    Ok(Script {
        name: raw.name,
        steps: steps.collect::<Result<_, _>>()?,
        after: raw.after,
        price: raw.price.map_or(Ok(Price::Free), price).map_err(|problem| Problem::at("price", problem))?,
        takes: raw.takes.into_iter().map(|kind| kind.name().to_owned()).collect(),
        patience: raw.patience.map_or_else(Patience::default, RawPatience::read),
        window: raw.window,
        summary: raw.summary,
        review: raw.review.map(|value| step(value, "review")).transpose()?,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScript {
    #[serde(default)]
    name: String,
    steps: Vec<Value>,
    #[serde(default)]
    after: After,
    price: Option<Value>,
    #[serde(default)]
    takes: Vec<RawKind>,
    patience: Option<RawPatience>,
    window: Option<u64>,
    summary: Option<String>,
    review: Option<Value>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawKind {
    Image,
    Audio,
    File,
}

impl RawKind {
    fn name(self) -> &'static str {
        match self {
            RawKind::Image => "image",
            RawKind::Audio => "audio",
            RawKind::File => "file",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPatience {
    first_byte_ms: Option<u64>,
    between_bytes_ms: Option<u64>,
}

impl RawPatience {
    fn read(self) -> Patience {
        let usual = Patience::default();
        Patience {
            first_byte: self.first_byte_ms.map_or(usual.first_byte, Duration::from_millis),
            between_bytes: self.between_bytes_ms.map_or(usual.between_bytes, Duration::from_millis),
        }
    }
}

fn price(value: Value) -> Result<Price, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct RawPrice {
        input_per_mtok_usd: f64,
        output_per_mtok_usd: f64,
    }
    match value {
        Value::String(word) if word == "unknown" => Ok(Price::Unknown),
        Value::Object(map) => {
            let raw: RawPrice = fields(map)?;
            if raw.input_per_mtok_usd < 0.0 || raw.output_per_mtok_usd < 0.0 {
                return Err("a price is not negative".into());
            }
            Ok(Price::Known { input: raw.input_per_mtok_usd, output: raw.output_per_mtok_usd })
        }
        _ => Err("is \"unknown\", or an object with `input_per_mtok_usd` and `output_per_mtok_usd`".into()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    r#do: Option<Vec<Value>>,
    attempts: Option<Vec<RawDo>>,
    cases: Option<Vec<RawCase>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDo {
    r#do: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    seen: Option<String>,
    r#do: Vec<Value>,
}

fn step(value: Value, place: &str) -> Result<Step, Problem> {
    let raw: RawStep = serde_json::from_value(value).map_err(|error| Problem::at(place, error.to_string()))?;
    match (raw.r#do, raw.attempts, raw.cases) {
        (Some(list), None, None) => Ok(Step::Do(actions(list, place)?)),
        (None, Some(list), None) if !list.is_empty() => {
            let entries = list.into_iter().enumerate();
            let entries = entries.map(|(index, raw)| actions(raw.r#do, &format!("{place}, attempt {}", index + 1)));
            Ok(Step::Attempts(entries.collect::<Result<_, _>>()?))
        }
        (None, None, Some(list)) if !list.is_empty() => Ok(Step::Cases(cases(list, place)?)),
        (None, Some(_), None) => Err(Problem::at(place, "`attempts` is empty")),
        (None, None, Some(_)) => Err(Problem::at(place, "`cases` is empty")),
        _ => Err(Problem::at(place, "needs exactly one of `do`, `attempts` and `cases`")),
    }
}

fn cases(list: Vec<RawCase>, place: &str) -> Result<Vec<Case>, Problem> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, raw) in list.into_iter().enumerate() {
        let place = format!("{place}, case {}", index + 1);
        if cases.last().is_some_and(|case| case.seen.is_none()) {
            return Err(Problem::at(&place, "is never played: the case before it has no `seen` and always fits"));
        }
        cases.push(Case { seen: raw.seen, actions: actions(raw.r#do, &place)? });
    }
    Ok(cases)
}

fn actions(list: Vec<Value>, place: &str) -> Result<Vec<Action>, Problem> {
    let mut actions: Vec<Action> = Vec::new();
    for (index, value) in list.into_iter().enumerate() {
        let place = format!("{place}, action {}", index + 1);
        if actions.last().is_some_and(Action::is_last) {
            return Err(Problem::at(&place, "is never played: the action before it ends the stream"));
        }
        actions.push(action::read(value).map_err(|problem| Problem::at(&place, problem))?);
    }
    Ok(actions)
}

fn fields<T: DeserializeOwned>(map: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(map)).map_err(|error| error.to_string())
}
