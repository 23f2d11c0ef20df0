//! Budgets of a turn and what it has spent. A breach pauses the turn; raising the budget lets it go on.

use serde::{Deserialize, Serialize};

use crate::model::{MicroUsd, Usage, is_zero};

/// Limits per turn; `None` is no limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Budgets {
    pub max_steps: Option<u64>,
    pub max_tool_calls: Option<u64>,
    pub max_duration_ms: Option<u64>,
    pub max_tokens: Option<u64>,
    pub max_micro_usd: Option<MicroUsd>,
}

impl Default for Budgets {
    /// The limits of a coding session.
    fn default() -> Self {
        Self {
            max_steps: Some(200),
            max_tool_calls: Some(500),
            max_duration_ms: Some(2 * 60 * 60 * 1000),
            max_tokens: None,
            max_micro_usd: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BudgetKind {
    Steps,
    ToolCalls,
    Duration,
    Tokens,
    Money,
}

impl BudgetKind {
    /// What is limited, for people.
    pub fn name(self) -> &'static str {
        match self {
            BudgetKind::Steps => "steps",
            BudgetKind::ToolCalls => "tool calls",
            BudgetKind::Duration => "time",
            BudgetKind::Tokens => "tokens",
            BudgetKind::Money => "money",
        }
    }

    /// So much of it, for people.
    pub fn amount(self, amount: u64) -> String {
        match self {
            BudgetKind::Steps | BudgetKind::ToolCalls | BudgetKind::Tokens => format!("{amount} {}", self.name()),
            BudgetKind::Duration => match amount {
                ms if ms > 0 && ms.is_multiple_of(HOUR_MS) => format!("{} h", ms / HOUR_MS),
                ms if ms > 0 && ms.is_multiple_of(MINUTE_MS) => format!("{} min", ms / MINUTE_MS),
                ms => format!("{} s", ms as f64 / 1000.0),
            },
            BudgetKind::Money => {
                let (dollars, rest) = (amount / 1_000_000, format!("{:06}", amount % 1_000_000));
                // Cents are always told.
                let (cents, finer) = rest.split_at(2);
                format!("${dollars}.{cents}{}", finer.trim_end_matches('0'))
            }
        }
    }
}

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// What a turn has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Spent {
    pub steps: u64,
    pub tool_calls: u64,
    /// Time in which the turn was active: waiting for people does not count.
    pub active_ms: u64,
    pub usage: Usage,
    /// Known costs only.
    #[serde(skip_serializing_if = "is_zero")]
    pub micro_usd: MicroUsd,
    /// Whether a step's price is not known, which makes the cost of the turn unknown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unpriced: bool,
}

impl Spent {
    /// The cost, or `None` where a step's price is not known: never a made-up zero.
    pub fn cost(&self) -> Option<MicroUsd> {
        (!self.unpriced).then_some(self.micro_usd)
    }
}

/// A limit that was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Breach {
    pub budget: BudgetKind,
    pub limit: u64,
    pub used: u64,
}

impl Budgets {
    fn over(limit: Option<u64>, used: u64, budget: BudgetKind) -> Option<Breach> {
        limit.filter(|limit| used >= *limit).map(|limit| Breach { budget, limit, used })
    }

    /// Whether another model step would break a limit.
    pub fn before_step(&self, spent: &Spent) -> Option<Breach> {
        Self::over(self.max_steps, spent.steps, BudgetKind::Steps).or_else(|| self.always(spent))
    }

    /// Whether another tool call would break a limit.
    pub fn before_call(&self, spent: &Spent) -> Option<Breach> {
        Self::over(self.max_tool_calls, spent.tool_calls, BudgetKind::ToolCalls)
            .or_else(|| Self::over(self.max_duration_ms, spent.active_ms, BudgetKind::Duration))
    }

    fn always(&self, spent: &Spent) -> Option<Breach> {
        Self::over(self.max_duration_ms, spent.active_ms, BudgetKind::Duration)
            .or_else(|| Self::over(self.max_tokens, spent.usage.budget_tokens(), BudgetKind::Tokens))
            // Money is counted from known prices alone: an unknown price never trips it.
            .or_else(|| Self::over(self.max_micro_usd, spent.micro_usd, BudgetKind::Money))
    }
}
