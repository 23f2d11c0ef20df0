//! What a vendor counts of one reply: later numbers may be finer, but nothing that was used is taken back.

use bytes::Bytes;
use proptest::{collection::vec, option, prelude::*};
use serde_json::{Value, json};
use tenure_core::model::Usage;
use tenure_models::{ModelEvent, entry::ToolMode};
use tenure_testkit::vendor::Format;

use crate::decoders::{events, model};

/// Numbers as a vendor might send them; some are left out.
#[derive(Debug, Clone, Copy)]
struct Told {
    input: Option<u64>,
    output: Option<u64>,
    cached: Option<u64>,
    written: Option<u64>,
}

fn told() -> impl Strategy<Value = Told> {
    let number = || option::of(prop_oneof![Just(0), 0..1000_u64, Just(u64::MAX)]);
    (number(), number(), number(), number()).prop_map(|(input, output, cached, written)| Told {
        input,
        output,
        cached,
        written,
    })
}

/// The object with what is there.
fn object(fields: &[(&str, Value)]) -> Value {
    fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (*name, value.clone())).collect()
}

impl Told {
    fn event(self, format: Format, is_first: bool) -> Value {
        let Told { input, output, cached, written } = self;
        let details = json!({ "cached_tokens": cached, "cache_write_tokens": written });
        match format {
            Format::Anthropic => {
                let usage = object(&[
                    ("input_tokens", json!(input)),
                    ("output_tokens", json!(output)),
                    ("cache_read_input_tokens", json!(cached)),
                    ("cache_creation_input_tokens", json!(written)),
                ]);
                match is_first {
                    true => json!({ "type": "message_start", "message": { "usage": usage } }),
                    false => json!({ "type": "message_delta", "delta": {}, "usage": usage }),
                }
            }
            Format::Chat => {
                let usage = object(&[
                    ("prompt_tokens", json!(input)),
                    ("completion_tokens", json!(output)),
                    ("prompt_tokens_details", details),
                ]);
                json!({ "choices": [], "usage": usage })
            }
            Format::Responses => {
                let usage = object(&[
                    ("input_tokens", json!(input)),
                    ("output_tokens", json!(output)),
                    ("input_tokens_details", details),
                ]);
                json!({ "type": "response.completed", "response": { "usage": usage } })
            }
            Format::Gemini => {
                let usage = object(&[
                    ("promptTokenCount", json!(input)),
                    ("candidatesTokenCount", json!(output)),
                    ("cachedContentTokenCount", json!(cached)),
                ]);
                json!({ "usageMetadata": usage })
            }
        }
    }
}

/// The counts that come of a stream, each event of which comes in a piece of its own.
fn counts(format: Format, told: &[Told]) -> Vec<Usage> {
    let pieces = told.iter().enumerate().map(|(number, told)| told.event(format, number == 0));
    let pieces = pieces.map(|event| Bytes::from(format!("data: {event}\n\n"))).collect();
    let counts = events(&model(format.wire(), ToolMode::Native), pieces).into_iter().filter_map(|event| match event {
        Ok(ModelEvent::Usage(usage)) => Some(usage),
        _ => None,
    });
    counts.collect()
}

proptest! {
    #[test]
    fn usage_never_falls(told in vec(told(), 1..8)) {
        for format in Format::ALL {
            let counts = counts(format, &told);
            prop_assert!(!counts.is_empty(), "{:?}", format);
            for pair in counts.windows(2) {
                prop_assert!(pair[0].sent() <= pair[1].sent(), "{:?}: {:?}", format, pair);
                prop_assert!(pair[0].output_tokens <= pair[1].output_tokens, "{:?}: {:?}", format, pair);
            }
            // The last word of Responses is its only one.
            let heard = if format == Format::Responses { &told[..1] } else { &told[..] };
            let most = heard.iter().filter_map(|told| told.output).max().unwrap_or(0);
            prop_assert_eq!(counts.last().unwrap().output_tokens, most, "{:?}", format);
        }
    }
}

#[test]
fn a_later_count_may_be_finer() {
    let coarse = Told { input: Some(1000), output: Some(1), cached: None, written: None };
    let fine = Told { cached: Some(800), output: Some(7), ..coarse };
    let zeros = Told { input: Some(0), output: Some(0), cached: Some(0), written: Some(0) };
    let expected = Usage { input_tokens: 200, output_tokens: 7, cache_read_tokens: 800, cache_write_tokens: 0 };
    for format in [Format::Chat, Format::Gemini] {
        assert_eq!(counts(format, &[coarse, fine, zeros]).pop(), Some(expected), "{format:?}");
    }
}
