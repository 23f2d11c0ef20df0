//! A session's stream as SSE or NDJSON. Items are pulled one by one as the socket takes them: nothing is buffered here, and nothing is written anew.

use std::{collections::VecDeque, fmt, io, pin::Pin, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use serde::Deserialize;
use tenure_core::{cursor::Cursor, event::Body as EventBody};
use tenure_engine::{Error, FeedItem, FeedSubscription, StreamItem, Subscription};
use tenure_wire::{EVENT_STREAM, LAST_EVENT_ID, LOG_DAMAGED, NDJSON, STREAM_RESET};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::{
    App,
    problem::Rejection,
    query::{InSession, Params, bad_cursor, bad_query},
};
use crate::access::caller::Caller;

/// Tells proxies to pass each event on at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Larger items are passed on as they are, in pieces.
const COPIED_BYTES_MAX: usize = 16 * 1024;
const SSE_KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Events that are not numbered.
pub(crate) const DELTA_TYPES: [&str; 4] =
    ["model_output_delta", "model_thinking_delta", "tool_arguments_delta", "tool_output_delta"];
/// They say that something is missing, and are told whatever was asked for.
pub(crate) const NOTES: [&str; 2] = [STREAM_RESET, LOG_DAMAGED];

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct From {
    /// The cursor after which to begin; the header `Last-Event-ID` wins over it.
    after: Option<String>,
    /// `false`: end at the present. By default the stream stays open.
    follow: Option<bool>,
    /// Only these types, with commas between them.
    types: Option<String>,
}

impl From {
    fn ends(&self) -> Ends {
        if self.follow.unwrap_or(true) { Ends::WhenStopped } else { Ends::AtThePresent }
    }

    fn types(&self) -> Result<Option<Vec<String>>, Rejection> {
        self.types.as_deref().map(types).transpose()
    }
}

pub(crate) async fn events(
    State(app): State<Arc<App>>,
    caller: Caller,
    InSession(session): InSession,
    Params(from): Params<From>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let after = cursor(&headers, from.after.as_deref())?;
    let ends = from.ends();
    let format = Format::asked_for(&headers);
    let types = from.types()?;
    let place = place(&app)?;
    let subscription = app.engine.events(session, after, ends == Ends::WhenStopped).await?;
    Ok(told(&app, items(subscription, types), format, ends, caller.life, place))
}

/// All sessions at the level of their status.
pub(crate) async fn of_all(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(from): Params<From>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let after = begins(&headers, from.after.as_deref(), |text| {
        text.parse().map_err(|()| bad_cursor("the cursor is not one that this stream gave"))
    })?;
    let ends = from.ends();
    let types = from.types()?;
    let place = place(&app)?;
    let feed = app.engine.feed(after, ends == Ends::WhenStopped);
    Ok(told(&app, items(feed, types), Format::asked_for(&headers), ends, caller.life, place))
}

/// A place among the streams.
fn place(app: &App) -> Result<OwnedSemaphorePermit, Rejection> {
    Arc::clone(&app.streams).try_acquire_owned().map_err(|_| {
        let (detail, hint) = ("there are as many event streams as there may be", "close one, then try again");
        Rejection::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", detail, hint).header(header::RETRY_AFTER, "5")
    })
}

fn told<T: Tellable>(
    app: &App,
    items: Items<T>,
    format: Format,
    ends: Ends,
    life: CancellationToken,
    place: OwnedSemaphorePermit,
) -> Response {
    let keep_alive = app.limits.keep_alive;
    let told = Told { items, pieces: VecDeque::new(), format, ends, keep_alive, life, _place: place };
    let head = [(header::CONTENT_TYPE, format.media_type()), (X_ACCEL_BUFFERING, "no")];
    (StatusCode::OK, head, Body::from_stream(told.into_stream())).into_response()
}

/// A misspelt type would be waited for in vain, so it is refused.
fn types(text: &str) -> Result<Vec<String>, Rejection> {
    let known =
        |name: &&str| EventBody::WIRE_TYPES.contains(name) || DELTA_TYPES.contains(name) || NOTES.contains(name);
    let names: Vec<&str> = text.split(',').map(str::trim).collect();
    match names.iter().find(|name| !known(name)) {
        None => Ok(names.into_iter().map(str::to_owned).collect()),
        Some(name) => Err(bad_query(format!("types: there are no events of type {name:?}"))),
    }
}

/// A client that reconnects by itself sends `Last-Event-ID` to an address that still holds its first `after`: the header is newer. Both have to be right.
fn begins<T>(
    headers: &HeaderMap,
    after: Option<&str>,
    read: impl Fn(&str) -> Result<T, Rejection>,
) -> Result<Option<T>, Rejection> {
    let header = match headers.get(LAST_EVENT_ID) {
        None => None,
        Some(value) => Some(value.to_str().map_err(|_| bad_cursor("Last-Event-ID is not a cursor"))?),
    };
    let after = after.map(&read).transpose()?;
    Ok(header.filter(|text| !text.is_empty()).map(read).transpose()?.or(after))
}

fn cursor(headers: &HeaderMap, after: Option<&str>) -> Result<Cursor, Rejection> {
    let read = |text: &str| text.parse().map_err(|error: tenure_core::cursor::BadCursor| bad_cursor(error.to_string()));
    Ok(begins(headers, after, read)?.unwrap_or(Cursor::START))
}

/// How much `Accept` wants a type, in thousandths: as the first of these ranges that it names says.
fn quality(headers: &HeaderMap, ranges: &[&str]) -> u32 {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let entries: Vec<&str> = accepted.flat_map(|value| value.split(',')).collect();
    let of = |range: &&str| {
        let named = entries.iter().filter_map(|entry| {
            let mut parts = entry.split(';').map(str::trim);
            let is_it = parts.next()?.eq_ignore_ascii_case(range);
            let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
            // What is no number is taken for no wish.
            let weight: f32 = weight.map_or(Ok(1.0), str::parse).unwrap_or(0.0);
            // Fits: it lies between 0 and 1.
            is_it.then_some((weight.clamp(0.0, 1.0) * 1000.0) as u32)
        });
        named.max()
    };
    ranges.iter().find_map(of).unwrap_or(0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Sse,
    Ndjson,
}

impl Format {
    /// NDJSON where it is named and wanted no less than the other.
    fn asked_for(headers: &HeaderMap) -> Self {
        let (ndjson, sse) = (quality(headers, &[NDJSON]), quality(headers, &[EVENT_STREAM, "text/*", "*/*"]));
        if ndjson > 0 && ndjson >= sse { Format::Ndjson } else { Format::Sse }
    }

    fn media_type(self) -> &'static str {
        match self {
            Format::Sse => EVENT_STREAM,
            Format::Ndjson => NDJSON,
        }
    }

    /// The pieces that follow each other on the wire. A small item is one; the bytes of a large one may be shared with
    /// other watchers and are never copied.
    pub(crate) fn write(self, item: &impl Tellable) -> VecDeque<Bytes> {
        let (cursor, wire_type, json) = item.parts();
        // The JSON holds no line end, so that it is one line in both formats.
        let (head, end) = match self {
            Format::Sse => (format!("id: {cursor}\nevent: {wire_type}\ndata: "), "\n\n"),
            Format::Ndjson => (String::new(), "\n"),
        };
        if json.len() > COPIED_BYTES_MAX {
            let pieces = [Bytes::from(head), json.clone(), Bytes::from_static(end.as_bytes())];
            return pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        }
        let mut out = BytesMut::with_capacity(head.len() + json.len() + end.len());
        out.put_slice(head.as_bytes());
        out.put_slice(json);
        out.put_slice(end.as_bytes());
        VecDeque::from([out.freeze()])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    WhenStopped,
    AtThePresent,
}

/// What a stream tells, one by one.
pub(crate) trait Tellable: Send + 'static {
    /// Its cursor, its type and its envelope.
    fn parts(&self) -> (impl fmt::Display, &str, &Bytes);
}

impl Tellable for StreamItem {
    fn parts(&self) -> (impl fmt::Display, &str, &Bytes) {
        (self.cursor, &self.wire_type, &self.json)
    }
}

impl Tellable for FeedItem {
    fn parts(&self) -> (impl fmt::Display, &str, &Bytes) {
        (self.cursor, &self.wire_type, &self.json)
    }
}

/// Where items come from.
trait Source: Send + 'static {
    type Item: Tellable;
    fn next(&mut self) -> impl Future<Output = Option<Result<Self::Item, Error>>> + Send;
}

impl Source for Subscription {
    type Item = StreamItem;

    async fn next(&mut self) -> Option<Result<StreamItem, Error>> {
        Subscription::next(self).await
    }
}

impl Source for FeedSubscription {
    type Item = FeedItem;

    async fn next(&mut self) -> Option<Result<FeedItem, Error>> {
        FeedSubscription::next(self).await
    }
}

type Items<T> = Pin<Box<dyn Stream<Item = Result<T, Error>> + Send>>;

/// A pull under way is kept by the stream, so that a sign of life between never loses an item.
fn items<S: Source>(source: S, types: Option<Vec<String>>) -> Items<S::Item> {
    Box::pin(stream::unfold((source, types), async |(mut source, types)| {
        loop {
            let item = source.next().await?;
            let wanted = match (&item, &types) {
                (Ok(item), Some(types)) => {
                    let (_, wire_type, _) = item.parts();
                    NOTES.contains(&wire_type) || types.iter().any(|wanted| wanted == wire_type)
                }
                _ => true,
            };
            if wanted {
                return Some((item, (source, types)));
            }
        }
    }))
}

/// What one client is told.
struct Told<T> {
    items: Items<T>,
    /// What is left of an item that goes out in pieces.
    pieces: VecDeque<Bytes>,
    format: Format,
    ends: Ends,
    keep_alive: Duration,
    /// Ends with the daemon, and with the token or cookie that the client showed.
    life: CancellationToken,
    _place: OwnedSemaphorePermit,
}

impl<T: Tellable> Told<T> {
    fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send {
        stream::unfold(Some(self), async |told| {
            let mut told = told?;
            match told.next().await {
                Some(Ok(bytes)) => Some((Ok(bytes), Some(told))),
                // An error ends the connection without its closing mark: the client sees that something is missing.
                Some(Err(error)) => Some((Err(error), None)),
                None => None,
            }
        })
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        // Not even a stop comes between the pieces of one item.
        if let Some(piece) = self.pieces.pop_front() {
            return Some(Ok(piece));
        }
        tokio::select! {
            biased;
            () = self.life.cancelled() => match self.ends {
                Ends::WhenStopped => None,
                Ends::AtThePresent => Some(Err(io::Error::other("the daemon stops, or the token is not valid any more"))),
            },
            item = self.items.next() => match item? {
                Ok(item) => {
                    self.pieces = self.format.write(&item);
                    self.pieces.pop_front().map(Ok)
                }
                Err(Error::Closed) => None,
                Err(error) => {
                    tracing::warn!("an event stream was cut: {error}");
                    Some(Err(io::Error::other(error.to_string())))
                }
            },
            () = silence(self.format, self.keep_alive) => Some(Ok(Bytes::from_static(SSE_KEEP_ALIVE))),
        }
    }
}

/// NDJSON has no comments, so a quiet stream stays quiet.
async fn silence(format: Format, keep_alive: Duration) {
    match format {
        Format::Sse => tokio::time::sleep(keep_alive).await,
        Format::Ndjson => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        headers
    }

    #[test]
    fn the_header_wins_over_the_address() {
        let read = |headers: &HeaderMap, after| cursor(headers, after).map_err(|_| ());
        assert_eq!(read(&HeaderMap::new(), None), Ok(Cursor::START));
        assert_eq!(read(&HeaderMap::new(), Some("4.2")), Ok(Cursor { seq: 4, pos: 2 }));
        assert_eq!(read(&headers(LAST_EVENT_ID, "7"), Some("4")), Ok(Cursor::at(7)));
        assert_eq!(read(&headers(LAST_EVENT_ID, ""), Some("4")), Ok(Cursor::at(4)));
        assert_eq!(read(&headers(LAST_EVENT_ID, "x"), Some("4")), Err(()));
        assert_eq!(read(&headers(LAST_EVENT_ID, "7"), Some("x")), Err(()));
        assert_eq!(read(&HeaderMap::new(), Some("")), Err(()));
    }

    #[test]
    fn formats() {
        for (accept, format) in [
            ("text/event-stream", Format::Sse),
            ("*/*", Format::Sse),
            ("application/x-ndjson", Format::Ndjson),
            ("text/html, Application/X-NDJSON;q=0.9", Format::Ndjson),
            ("application/x-ndjson;q=0", Format::Sse),
            ("application/x-ndjson; Q=0.000, */*", Format::Sse),
            ("application/x-ndjson;q=0.5, text/event-stream", Format::Sse),
            ("application/x-ndjson;q=0.5, text/event-stream;q=0.4", Format::Ndjson),
            ("application/x-ndjson, */*", Format::Ndjson),
            ("application/x-ndjson;q=0.2, text/*;q=0.1, */*", Format::Ndjson),
            ("application/x-ndjson;q=0.2, */*;q=0.3", Format::Sse),
            ("application/x-ndjson;q=much", Format::Sse),
            ("application/x-ndjson;v=1;q=0.1", Format::Ndjson),
        ] {
            assert_eq!(Format::asked_for(&headers("accept", accept)), format, "{accept}");
        }
        assert_eq!(Format::asked_for(&HeaderMap::new()), Format::Sse);
    }

    #[test]
    fn an_item_is_written_as_it_stands() {
        let json = Bytes::from_static(br#"{"seq":3,"type":"turn_started"}"#);
        let item = StreamItem { cursor: Cursor { seq: 3, pos: 9 }, wire_type: "turn_started".into(), json };
        let sse = "id: 3.9\nevent: turn_started\ndata: {\"seq\":3,\"type\":\"turn_started\"}\n\n";
        assert_eq!(Format::Sse.write(&item), [sse]);
        assert_eq!(Format::Ndjson.write(&item), ["{\"seq\":3,\"type\":\"turn_started\"}\n"]);
    }

    #[test]
    fn a_large_item_goes_out_in_pieces_that_are_not_copied() {
        let json = Bytes::from(vec![b'x'; COPIED_BYTES_MAX + 1]);
        let item = StreamItem { cursor: Cursor::at(3), wire_type: "turn_started".into(), json: json.clone() };
        for (format, head, end) in
            [(Format::Sse, "id: 3\nevent: turn_started\ndata: ", "\n\n"), (Format::Ndjson, "", "\n")]
        {
            let pieces = format.write(&item);
            assert_eq!(
                pieces.iter().flatten().copied().collect::<Vec<u8>>(),
                [head.as_bytes(), &json, end.as_bytes()].concat()
            );
            assert!(pieces.iter().any(|piece| piece.as_ptr() == json.as_ptr()));
            assert!(pieces.iter().all(|piece| !piece.is_empty()), "an empty chunk would end the body");
        }
    }
}
