//! A session's stream as SSE or NDJSON. Items are pulled one by one as the socket takes them: nothing is buffered here, and nothing is written anew.

use std::{io, pin::Pin, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use serde::Deserialize;
use tenure_core::cursor::Cursor;
use tenure_engine::{Error, StreamItem, Subscription};
use tenure_wire::{EVENT_STREAM, LAST_EVENT_ID, NDJSON};
use tokio_util::sync::CancellationToken;

use super::{
    App,
    problem::Rejection,
    query::{InSession, Params, bad_cursor},
};

/// Tells proxies to pass each event on at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const SSE_KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct From {
    after: Option<String>,
    follow: Option<bool>,
}

pub(crate) async fn events(
    State(app): State<Arc<App>>,
    InSession(session): InSession,
    Params(from): Params<From>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let after = cursor(&headers, from.after.as_deref())?;
    let ends = if from.follow.unwrap_or(true) { Ends::WhenStopped } else { Ends::AtThePresent };
    let format = Format::asked_for(&headers);
    let subscription = app.engine.events(session, after, ends == Ends::WhenStopped).await?;
    let told =
        Told { items: items(subscription), format, ends, keep_alive: app.limits.keep_alive, stop: app.stop.clone() };
    let head = [(header::CONTENT_TYPE, format.media_type()), (X_ACCEL_BUFFERING, "no")];
    Ok((StatusCode::OK, head, Body::from_stream(told.into_stream())).into_response())
}

/// A client that reconnects by itself sends `Last-Event-ID` to an address that still holds its first `after`: the header is newer.
fn cursor(headers: &HeaderMap, after: Option<&str>) -> Result<Cursor, Rejection> {
    let header = match headers.get(LAST_EVENT_ID) {
        None => None,
        Some(value) => Some(value.to_str().map_err(|_| bad_cursor("Last-Event-ID is not a cursor"))?),
    };
    match header.filter(|text| !text.is_empty()).or(after) {
        None => Ok(Cursor::START),
        Some(text) => text.parse().map_err(|error: tenure_core::cursor::BadCursor| bad_cursor(error.to_string())),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Sse,
    Ndjson,
}

impl Format {
    fn asked_for(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut types = accepted.flat_map(|value| value.split(',')).map(|entry| entry.split(';').next().unwrap_or(""));
        if types.any(|name| name.trim().eq_ignore_ascii_case(NDJSON)) { Format::Ndjson } else { Format::Sse }
    }

    fn media_type(self) -> &'static str {
        match self {
            Format::Sse => EVENT_STREAM,
            Format::Ndjson => NDJSON,
        }
    }

    fn write(self, item: &StreamItem) -> Bytes {
        // The JSON holds no line end, so that it is one line in both formats.
        let mut out = BytesMut::with_capacity(item.json.len() + 96);
        match self {
            Format::Sse => {
                let head = format!("id: {}\nevent: {}\ndata: ", item.cursor, &*item.wire_type);
                out.put_slice(head.as_bytes());
                out.put_slice(&item.json);
                out.put_slice(b"\n\n");
            }
            Format::Ndjson => {
                out.put_slice(&item.json);
                out.put_u8(b'\n');
            }
        }
        out.freeze()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    WhenStopped,
    AtThePresent,
}

type Items = Pin<Box<dyn Stream<Item = Result<StreamItem, Error>> + Send>>;

/// A pull under way is kept by the stream, so that a sign of life between never loses an item.
fn items(subscription: Subscription) -> Items {
    Box::pin(stream::unfold(subscription, async |mut subscription| {
        let item = subscription.next().await?;
        Some((item, subscription))
    }))
}

/// What one client is told.
struct Told {
    items: Items,
    format: Format,
    ends: Ends,
    keep_alive: Duration,
    stop: CancellationToken,
}

impl Told {
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
        tokio::select! {
            biased;
            () = self.stop.cancelled() => match self.ends {
                Ends::WhenStopped => None,
                Ends::AtThePresent => Some(Err(io::Error::other("the daemon stops"))),
            },
            item = self.items.next() => match item? {
                Ok(item) => Some(Ok(self.format.write(&item))),
                Err(Error::Closed) => None,
                // All that can be read was told. Whoever asks for what comes after it is told why there is nothing.
                Err(Error::Store(tenure_store::Error::Damaged { .. })) => None,
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
        assert_eq!(read(&HeaderMap::new(), Some("")), Err(()));
    }

    #[test]
    fn formats() {
        for (accept, format) in [
            ("text/event-stream", Format::Sse),
            ("*/*", Format::Sse),
            ("application/x-ndjson", Format::Ndjson),
            ("text/html, Application/X-NDJSON;q=0.9", Format::Ndjson),
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
        assert_eq!(Format::Sse.write(&item), sse);
        assert_eq!(Format::Ndjson.write(&item), "{\"seq\":3,\"type\":\"turn_started\"}\n");
    }
}
