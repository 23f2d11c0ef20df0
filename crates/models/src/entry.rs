//! What is known of one model: how to call it, what it can take, what it costs.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::model::{MicroUsd, Usage};

use crate::Patience;

/// A model as a vendor offers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// `provider/model`.
    pub name: String,
    /// What the vendor calls it.
    pub id: String,
    /// Tokens that a request and its reply may have together.
    pub window: Option<u64>,
    /// Tokens that a reply may have.
    pub output_max: Option<u64>,
    pub prices: Option<Prices>,
    /// Kinds of parts besides text.
    pub takes: Vec<PartKind>,
    pub tool_mode: ToolMode,
    pub thinking: ThinkingStyle,
    /// How hard it should think; `None` leaves it to the vendor.
    pub effort: Option<Effort>,
    /// The server wants a model's reasoning back.
    pub sends_reasoning: bool,
    /// OpenAI's own server, which knows more than its imitators.
    pub is_openai: bool,
    pub patience: Patience,
}

impl Entry {
    /// One that plays a script: it costs nothing and takes text alone.
    pub(crate) fn scripted(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            id: name.to_owned(),
            window: None,
            output_max: None,
            prices: Some(Prices::FREE),
            takes: Vec::new(),
            tool_mode: ToolMode::Native,
            thinking: ThinkingStyle::None,
            effort: None,
            sends_reasoning: false,
            is_openai: false,
            patience: Patience::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    Image,
    Audio,
    File,
}

impl PartKind {
    pub fn name(self) -> &'static str {
        match self {
            PartKind::Image => "image",
            PartKind::Audio => "audio",
            PartKind::File => "file",
        }
    }
}

/// How tools are offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolMode {
    /// In the vendor's own way.
    #[default]
    Native,
    /// As an action object that a JSON Schema holds in shape, for models whose own calls do not work.
    Schema,
}

/// How a model is told to think.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ThinkingStyle {
    /// It cannot be told.
    #[default]
    None,
    /// By a number of tokens.
    Budget,
    /// By a word for the effort.
    Effort,
    /// It decides by itself, led by a word for the effort.
    Adaptive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

impl Effort {
    /// Tokens for thinking out of those for the whole reply.
    pub fn share_of(self, tokens: u64) -> u64 {
        match self {
            Effort::Low => tokens / 8,
            Effort::Medium => tokens / 4,
            Effort::High => tokens / 2,
            Effort::Xhigh | Effort::Max => tokens - tokens / 4,
        }
    }
}

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rates {
    pub input: f64,
    pub output: f64,
    /// Like the input, where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Like the input, where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

/// What a model costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "GivenPrices")]
pub struct Prices {
    #[serde(flatten)]
    pub rates: Rates,
    /// Other rates for a whole request that is longer than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long: Option<LongPrices>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "GivenLongPrices")]
pub struct LongPrices {
    /// Tokens of input, cached ones too.
    pub above: u64,
    #[serde(flatten)]
    pub rates: Rates,
}

/// Prices as a user writes them. A misspelt key would be passed over in a flattened struct: it is refused in this one.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct GivenPrices {
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    long: Option<LongPrices>,
}

impl From<GivenPrices> for Prices {
    fn from(given: GivenPrices) -> Self {
        let GivenPrices { input, output, cache_read, cache_write, long } = given;
        Self { rates: Rates { input, output, cache_read, cache_write }, long }
    }
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct GivenLongPrices {
    above: u64,
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
}

impl From<GivenLongPrices> for LongPrices {
    fn from(given: GivenLongPrices) -> Self {
        let GivenLongPrices { above, input, output, cache_read, cache_write } = given;
        Self { above, rates: Rates { input, output, cache_read, cache_write } }
    }
}

impl Prices {
    pub const FREE: Prices =
        Prices { rates: Rates { input: 0.0, output: 0.0, cache_read: None, cache_write: None }, long: None };

    /// What a reply costs, rounded up: a budget is never overdrawn by rounding.
    pub fn cost(&self, usage: &Usage) -> MicroUsd {
        let rates = match &self.long {
            Some(long) if usage.sent() > long.above => &long.rates,
            _ => &self.rates,
        };
        rates.cost(usage)
    }
}

impl Rates {
    /// A dollar for a million tokens is a millionth of a dollar for one.
    fn cost(&self, usage: &Usage) -> MicroUsd {
        let of = |tokens: u64, rate: f64| tokens as f64 * rate;
        let micro = of(usage.input_tokens, self.input)
            + of(usage.output_tokens, self.output)
            + of(usage.cache_read_tokens, self.cache_read.unwrap_or(self.input))
            + of(usage.cache_write_tokens, self.cache_write.unwrap_or(self.input));
        // Sums of fractions such as 0.1 are off by less than this.
        (micro - 1e-6).ceil().max(0.0) as MicroUsd
    }

    /// Whether these can be prices.
    pub fn are_sane(&self) -> bool {
        let sane = |rate: f64| rate.is_finite() && rate >= 0.0;
        [Some(self.input), Some(self.output), self.cache_read, self.cache_write].into_iter().flatten().all(sane)
    }
}

/// Servers on this machine load their models when they are first asked.
pub(crate) const LOCAL_PATIENCE: Patience =
    Patience { first_byte: Duration::from_secs(900), between_bytes: Duration::from_secs(60) };
