//! Reads the answers of Gemini: each event is a whole one, with what came since the last.

use serde::Deserialize;
use serde_json::Value;
use tenure_core::model::{Fault, FaultKind, StopReason, Usage};
use tenure_sse::Frame;

use super::{ORIGIN_CALL, ORIGIN_TEXT, ORIGIN_THOUGHT};
use crate::{
    ModelEvent,
    vendor::{
        fault,
        stream::{self, Decoder, Fragments},
    },
};

/// The state of one reply.
#[derive(Debug, Default)]
pub(crate) struct Content {
    calls: u32,
    thinks: bool,
    /// The last part was text without a signature.
    in_text: bool,
    finish: Option<StopReason>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    candidates: Vec<Candidate>,
    prompt_feedback: Option<Feedback>,
    usage_metadata: Option<Counts>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    content: Option<Parts>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
}

#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    parts: Vec<Piece>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Piece {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    thought_signature: Option<String>,
    function_call: Option<Call>,
}

#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    name: String,
    args: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

/// They repeat and grow; the last ones count.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Counts {
    prompt_token_count: u64,
    cached_content_token_count: u64,
    tool_use_prompt_token_count: u64,
    candidates_token_count: u64,
    thoughts_token_count: u64,
}

impl Decoder for Content {
    fn take(&mut self, frame: Frame, out: &mut Fragments) -> Result<(), Fault> {
        let answer: Answer = stream::json(&frame)?;
        if let Some(error) = &answer.error {
            return Err(fault::in_stream(error));
        }
        if let Some(counts) = answer.usage_metadata {
            out.push(ModelEvent::Usage(usage(counts)));
        }
        // A filter that stops a request says so here, and no candidate follows.
        if answer.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some()) {
            self.finish = Some(StopReason::Refusal);
        }
        for candidate in answer.candidates.into_iter().take(1) {
            for piece in candidate.content.into_iter().flat_map(|content| content.parts) {
                self.piece(piece, out);
            }
            if let Some(reason) = candidate.finish_reason {
                self.finish = Some(self.stop_reason(&reason, candidate.finish_message)?);
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Fragments) -> Result<Option<StopReason>, Fault> {
        if self.finish.is_some() {
            self.end_thinking(out);
        }
        Ok(self.finish)
    }
}

impl Content {
    fn piece(&mut self, piece: Piece, out: &mut Fragments) {
        let Piece { text, thought, thought_signature, function_call } = piece;
        if thought {
            self.thought(text.unwrap_or_default(), thought_signature, out);
            return;
        }
        self.end_thinking(out);
        let origin = match function_call {
            Some(call) => {
                self.in_text = false;
                let index = self.calls;
                self.calls += 1;
                let provider_id = call.id.filter(|id| !id.is_empty());
                out.push(ModelEvent::CallStarted { index, provider_id, name: call.name });
                let text = call.args.filter(|args| !args.is_null()).map(|args| args.to_string());
                out.push(ModelEvent::CallArguments { index, text: text.unwrap_or_default() });
                format!("{ORIGIN_CALL}{index}")
            }
            None => {
                // A signature is of its own part alone.
                let text = text.unwrap_or_default();
                if self.in_text && thought_signature.is_some() && !text.is_empty() {
                    out.push(ModelEvent::ThinkingDone { signature: None, origin: None });
                }
                self.in_text = thought_signature.is_none() && (self.in_text || !text.is_empty());
                out.push(ModelEvent::Text(text));
                ORIGIN_TEXT.to_owned()
            }
        };
        if thought_signature.is_some() {
            out.push(ModelEvent::ThinkingDone { signature: thought_signature, origin: Some(origin) });
        }
    }

    fn thought(&mut self, text: String, signature: Option<String>, out: &mut Fragments) {
        self.in_text = false;
        if signature.is_none() {
            self.thinks = true;
            out.push(ModelEvent::Thinking(text));
            return;
        }
        self.end_thinking(out);
        out.push(ModelEvent::Thinking(text));
        out.push(ModelEvent::ThinkingDone { signature, origin: Some(ORIGIN_THOUGHT.into()) });
    }

    fn end_thinking(&mut self, out: &mut Fragments) {
        if std::mem::take(&mut self.thinks) {
            out.push(ModelEvent::ThinkingDone { signature: None, origin: None });
        }
    }

    fn stop_reason(&self, reason: &str, message: Option<String>) -> Result<StopReason, Fault> {
        Ok(match reason {
            "MAX_TOKENS" => StopReason::MaxTokens,
            "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => StopReason::Refusal,
            // The model wrote a call that its own vendor cannot read: another attempt may do better.
            "MALFORMED_FUNCTION_CALL" => {
                let more = message.map(|message| format!(": {message}")).unwrap_or_default();
                return Err(Fault::new(
                    FaultKind::Malformed,
                    format!("the model wrote a call that cannot be read{more}"),
                ));
            }
            _ if self.calls > 0 => StopReason::ToolUse,
            "STOP" => StopReason::EndTurn,
            _ => StopReason::Other,
        })
    }
}

/// The vendor's total holds the cached part, but not the thinking.
fn usage(counts: Counts) -> Usage {
    let input = counts.prompt_token_count.saturating_add(counts.tool_use_prompt_token_count);
    let cache_read_tokens = counts.cached_content_token_count.min(input);
    Usage {
        input_tokens: input - cache_read_tokens,
        output_tokens: counts.candidates_token_count.saturating_add(counts.thoughts_token_count),
        cache_read_tokens,
        cache_write_tokens: 0,
    }
}
