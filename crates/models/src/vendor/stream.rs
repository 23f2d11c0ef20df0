//! From a vendor's bytes to fragments of a reply: whatever came in one piece is handed on in as few as can be.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use tenure_core::model::{Fault, FaultKind, StopReason, Usage};
use tenure_sse::{Frame, Parser};

use crate::ModelEvent;

/// Reads one vendor's events.
pub(crate) trait Decoder: Send + 'static {
    /// Takes one event of the stream.
    fn take(&mut self, frame: Frame, out: &mut Fragments) -> Result<(), Fault>;

    /// Why the reply is over, when the bytes end. `None` where no closing mark was seen: the stream was cut.
    fn end(&mut self, out: &mut Fragments) -> Result<Option<StopReason>, Fault>;
}

/// Fragments that wait to be handed on; neighbours of one kind become one.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    waiting: VecDeque<ModelEvent>,
    /// The most that was told so far: vendors repeat their counts, and some end with zeros.
    usage: Usage,
}

impl Fragments {
    pub(crate) fn push(&mut self, event: ModelEvent) {
        match (self.waiting.back_mut(), event) {
            (_, ModelEvent::Text(more) | ModelEvent::Thinking(more)) if more.is_empty() => {}
            (Some(ModelEvent::Text(text)), ModelEvent::Text(more)) => text.push_str(&more),
            (Some(ModelEvent::Thinking(text)), ModelEvent::Thinking(more)) => text.push_str(&more),
            (
                Some(ModelEvent::CallArguments { index, text }),
                ModelEvent::CallArguments { index: same, text: more },
            ) if *index == same => text.push_str(&more),
            (last, ModelEvent::Usage(newer)) => {
                self.usage.raise(&newer);
                match last {
                    Some(ModelEvent::Usage(usage)) => *usage = self.usage,
                    _ => self.waiting.push_back(ModelEvent::Usage(self.usage)),
                }
            }
            (_, event) => self.waiting.push_back(event),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<ModelEvent> {
        self.waiting.pop_front()
    }

    fn is_done(&self) -> bool {
        matches!(self.waiting.back(), Some(ModelEvent::Done { .. }))
    }
}

/// Bytes of an answer under way.
pub(crate) type Chunks = BoxStream<'static, Result<Bytes, Fault>>;

/// The fragments of a reply, until it is done, broken or cut.
pub(crate) fn fragments(chunks: Chunks, decoder: impl Decoder) -> BoxStream<'static, Result<ModelEvent, Fault>> {
    let reader = Reader { chunks, parser: Parser::default(), decoder, ready: Fragments::default(), state: State::Open };
    futures::stream::unfold(reader, |mut reader| async move {
        let next = reader.next().await?;
        Some((next, reader))
    })
    .boxed()
}

struct Reader<D> {
    chunks: Chunks,
    parser: Parser,
    decoder: D,
    ready: Fragments,
    state: State,
}

enum State {
    Open,
    /// What is ready is handed on, then this.
    Ending(Option<Fault>),
    Over,
}

impl<D: Decoder> Reader<D> {
    async fn next(&mut self) -> Option<Result<ModelEvent, Fault>> {
        loop {
            if let Some(event) = self.ready.pop() {
                return Some(Ok(event));
            }
            match std::mem::replace(&mut self.state, State::Over) {
                State::Over => return None,
                State::Ending(fault) => return fault.map(Err),
                State::Open => {}
            }
            let chunk = self.chunks.next().await;
            let alive = matches!(chunk, Some(Ok(_)));
            self.state = match self.read(chunk) {
                Ok(state) => state,
                Err(fault) => State::Ending(Some(fault)),
            };
            if alive && self.ready.waiting.is_empty() && matches!(self.state, State::Open) {
                return Some(Ok(ModelEvent::KeepAlive));
            }
        }
    }

    fn read(&mut self, chunk: Option<Result<Bytes, Fault>>) -> Result<State, Fault> {
        let broken = match chunk {
            Some(Ok(bytes)) => {
                self.parser.push(&bytes).map_err(|error| Fault::new(FaultKind::Malformed, error.to_string()))?;
                while let Some(frame) = self.parser.take() {
                    self.decoder.take(frame, &mut self.ready)?;
                    if self.ready.is_done() {
                        return Ok(State::Ending(None));
                    }
                }
                return Ok(State::Open);
            }
            Some(Err(fault)) => Some(fault),
            None => None,
        };
        match self.decoder.end(&mut self.ready)? {
            Some(stop_reason) => {
                self.ready.push(ModelEvent::Done { stop_reason });
                Ok(State::Ending(None))
            }
            None => Ok(State::Ending(broken)),
        }
    }
}

/// An event that is not what its format says.
pub(crate) fn malformed(what: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::Malformed, format!("the vendor sent an event that cannot be read: {what}"))
}

/// The JSON of an event.
pub(crate) fn json<'a, T: serde::Deserialize<'a>>(frame: &'a Frame) -> Result<T, Fault> {
    serde_json::from_str(&frame.data).map_err(malformed)
}
