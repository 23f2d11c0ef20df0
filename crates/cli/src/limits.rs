//! What a turn may use, as the command line says it, and what to do where it has used it up.

use clap::Args;
use tenure_client::{
    Client,
    print::{LIMITS, of_limit},
};
use tenure_core::budget::BudgetKind;
use tenure_models::catalog::runs_models;
use tenure_wire::{Budgets, ProviderView, SessionView, Spent, TurnView};

use crate::{count::within, exit::Problem, span, terminal};

const HEADING: &str = "Limits of each turn";
const MICRO: u64 = 1_000_000;

/// A limit, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(Option<u64>);

#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Limits {
    /// What it may cost, in US dollars, such as 0.50; `none` is no limit
    #[arg(long, value_name = "DOLLARS", value_parser = dollars, allow_negative_numbers = true, help_heading = HEADING)]
    max_cost: Option<Limit>,
    /// How many tokens it may use, without those that are read from a cache; or `none`
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true, help_heading = HEADING)]
    max_tokens: Option<Limit>,
    /// How often its model may be asked, or `none`
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true, help_heading = HEADING)]
    max_steps: Option<Limit>,
    /// How many tools it may call, or `none`
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true, help_heading = HEADING)]
    max_calls: Option<Limit>,
    /// How long it may work, such as 10m, or `none`: then what runs is stopped; waiting for you does not count
    #[arg(long, value_name = "TIME", value_parser = time, allow_negative_numbers = true, help_heading = HEADING)]
    max_time: Option<Limit>,
}

impl Limits {
    /// The same for a command that may also go on with a session that is there.
    pub fn of_new(&self, goes_on: bool) -> Result<Option<Budgets>, Problem> {
        let budgets = self.budgets();
        if goes_on && budgets.is_some() {
            let hint = "`tenure session change SESSION` with the same options raises those of a session";
            return Err(Problem::usage("limits are said when a session is made", hint));
        }
        Ok(budgets)
    }

    /// What was said, if anything was.
    pub fn budgets(&self) -> Option<Budgets> {
        let of = |limit: Option<Limit>| limit.map(|Limit(limit)| limit);
        (*self != Self::default()).then(|| Budgets {
            max_steps: of(self.max_steps),
            max_tool_calls: of(self.max_calls),
            max_duration_ms: of(self.max_time),
            max_tokens: of(self.max_tokens),
            max_micro_usd: of(self.max_cost),
        })
    }
}

fn or_none(text: &str, read: impl Fn(&str) -> Result<u64, String>) -> Result<Limit, String> {
    if text == "none" { Ok(Limit(None)) } else { read(text).map(|limit| Limit(Some(limit))) }
}

fn number(text: &str) -> Result<Limit, String> {
    or_none(text, within(1..=u64::MAX))
}

fn time(text: &str) -> Result<Limit, String> {
    or_none(text, |text| span::parse(text).map(|span::Millis(ms)| ms))
}

fn dollars(text: &str) -> Result<Limit, String> {
    or_none(text, |text| micro_usd(text).ok_or_else(|| format!("'{text}' is no price: write dollars, such as 0.50")))
}

/// Exact, to the last of six digits behind the point.
fn micro_usd(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || part.len() > 6 || !digits(whole) || !digits(part) {
        return None;
    }
    let micro = whole.parse::<u64>().ok()?.checked_mul(MICRO)?.checked_add(format!("{part:0<6}").parse().ok()?)?;
    (micro > 0).then_some(micro)
}

/// What can be limited, the fields of the limits, and what a turn has used of it.
fn used(spent: &Spent) -> [(BudgetKind, &'static str, u64); 5] {
    let usage = &spent.usage;
    let tokens = usage.input_tokens.saturating_add(usage.cache_write_tokens).saturating_add(usage.output_tokens);
    [
        (BudgetKind::Steps, "max_steps", spent.steps),
        (BudgetKind::ToolCalls, "max_tool_calls", spent.tool_calls),
        (BudgetKind::Duration, "max_duration_ms", spent.active_ms),
        (BudgetKind::Tokens, "max_tokens", tokens),
        (BudgetKind::Money, "max_micro_usd", spent.micro_usd),
    ]
}

/// What the API calls it.
fn name(kind: BudgetKind) -> &'static str {
    match kind {
        BudgetKind::Steps => "steps",
        BudgetKind::ToolCalls => "tool_calls",
        BudgetKind::Duration => "duration",
        BudgetKind::Tokens => "tokens",
        BudgetKind::Money => "money",
    }
}

/// The limits of a session's turns, and what the open or the last turn has used of them; `None` where there are none.
pub fn shown(view: &SessionView, last: Option<&TurnView>) -> Option<String> {
    let spent = view.turn.as_ref().map(|turn| turn.spent).or(last.map(|turn| turn.spent));
    let told = |(kind, field, used): (BudgetKind, &str, u64)| {
        let limit = view.budgets[field].as_u64()?;
        Some(spent.map_or_else(|| kind.amount(limit), |_| of_limit(name(kind), used, limit)))
    };
    let all: Vec<String> = used(&spent.unwrap_or_default()).into_iter().filter_map(told).collect();
    let whose = match (&view.turn, last) {
        (Some(_), _) => "this turn used ",
        (None, Some(_)) => "the last turn used ",
        (None, None) => "each turn may use ",
    };
    (!all.is_empty()).then(|| format!("{whose}{}", all.join(", ")))
}

/// What the open turn has used up, and the command that lets it go on; `None` where it does not wait for that.
pub fn used_up(view: &SessionView) -> Option<(String, String)> {
    let spent = &view.turn.as_ref().filter(|turn| turn.status == "waiting_budget")?.spent;
    let (budget, found) = reached(view, spent).unwrap_or(("", "a limit".into()));
    Some((found, raising(view, budget)))
}

/// The command that lets a turn that ended at its budget get further the next time; `None` where nothing is in its way.
pub fn raise_first(view: &SessionView, last: &TurnView) -> Option<String> {
    let (budget, _) = reached(view, &last.spent).filter(|_| last.status == "expired")?;
    Some(raising(view, budget))
}

/// The limit that was reached: what it is of, and how much of it was used.
fn reached(view: &SessionView, spent: &Spent) -> Option<(&'static str, String)> {
    used(spent).into_iter().find_map(|(kind, field, used)| {
        let limit = view.budgets[field].as_u64().filter(|limit| used >= *limit)?;
        Some((name(kind), of_limit(name(kind), used, limit)))
    })
}

fn raising(view: &SessionView, budget: &str) -> String {
    let flag = LIMITS.iter().find(|(known, _)| *known == budget).map_or("--max-…", |(_, flag)| flag);
    format!("session change {} {flag} MORE", view.id)
}

/// Tells what the open turn waits for where that is its budget; `head` is how that begins. Whether it is so.
pub fn tell_waiting(view: &SessionView, head: &str) -> bool {
    let Some((found, command)) = used_up(view) else { return false };
    terminal::tell(&format!("{head}: {found}. It goes on after"));
    terminal::note(&format!("    tenure {command}\nfrom another terminal; /cancel gives it up.\n"));
    true
}

/// Whether a limit on money is among these.
pub fn limits_money(budgets: Option<&Budgets>) -> bool {
    matches!(budgets, Some(Budgets { max_micro_usd: Some(Some(_)), .. }))
}

/// A limit on money does nothing where prices are not known: that is told when a session gets the limit or the model.
pub async fn tell_unpriced(client: &Client, view: &SessionView) -> anyhow::Result<()> {
    if view.budgets["max_micro_usd"].is_null() {
        return Ok(());
    }
    let (model, list) = (&view.model, client.models(None).await?);
    let provider = model.split_once('/').map(|(provider, _)| provider);
    let is_priced = match list.models.iter().find(|known| known.name == *model) {
        Some(known) => known.prices.is_some(),
        // What no list names has no price, but for servers on the daemon's machine that run models, which are free.
        None => {
            let is_free = |known: &ProviderView| known.local && !known.has_key && runs_models(&known.name);
            list.providers.iter().all(|known| Some(known.name.as_str()) != provider || is_free(known))
        }
    };
    if !is_priced {
        terminal::tell(&format!(
            "The price of {model} is not known, so --max-cost cannot stop it: use --max-tokens, or name its prices \
             under [models.\"{model}\"] in config.toml."
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_read_exactly() {
        for (text, micro) in [("0.50", 500_000), ("2", 2_000_000), ("0.000001", 1), ("1.", 1_000_000)] {
            assert_eq!(dollars(text), Ok(Limit(Some(micro))), "{text}");
        }
        assert_eq!((dollars("none"), time("10m")), (Ok(Limit(None)), Ok(Limit(Some(600_000)))));
        for bad in ["", "0", ".5", "-1", "1e3", "0.0000001", "$1", "99999999999999"] {
            assert!(dollars(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_not_said_stays() {
        assert_eq!(Limits::default().budgets(), None);
        let said = Limits { max_cost: Some(Limit(None)), max_steps: Some(Limit(Some(3))), ..Limits::default() };
        let expected = Budgets { max_micro_usd: Some(None), max_steps: Some(Some(3)), ..Budgets::default() };
        assert_eq!(said.budgets(), Some(expected));
    }
}
