//! Takes connections and lets them go: how many, how long, and how they end when the daemon stops.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{Request, Response, StatusCode},
};
use bytes::Bytes;
use hyper::{
    body::{Frame, Incoming, SizeHint},
    server::conn::http1,
    service::Service,
};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    access::rates::{Crowd, Seat},
    http::problem::Rejection,
    limits::Limits,
    mute::Mute,
    patient::{Patient, Phase, Progress, Waits},
    refusals::Refusals,
    tls::Tls,
};

/// How long to wait when the system has no more files or memory to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What one connection may hold of requests and answers on their way.
const CONNECTION_BUFFER: usize = 64 * 1024;
/// How long the last answer on a connection may take to be read.
const LAST_WORD: Duration = Duration::from_secs(2);

/// What connections share.
pub(crate) struct Door {
    pub(crate) router: Router,
    pub(crate) limits: Limits,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) tls: Option<Tls>,
}

/// The address at the other end of a request's connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Serves every connection until `stop`, then waits for those under way.
pub(crate) async fn until_stopped(listener: TcpListener, door: Door, stop: CancellationToken) {
    let (free, crowd) = (Arc::new(Semaphore::new(door.limits.connections_max)), crowd(&door.limits));
    let tasks = TaskTracker::new();
    let cut = CancellationToken::new();
    let door = Arc::new(door);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (socket, peer) = match accepted {
            Ok((socket, address)) => (socket, address.ip()),
            Err(error) => {
                pause_if_exhausted(&error).await;
                continue;
            }
        };
        match (Arc::clone(&free).try_acquire_owned(), crowd.enter(peer)) {
            (Ok(permit), Some(seat)) => {
                let ends = Ends { stop: stop.clone(), cut: cut.clone(), _place: (permit, seat) };
                tasks.spawn(opened(socket, Arc::clone(&door), peer, ends));
            }
            _ => turn_away(&socket, &door, peer),
        }
    }
    drop(listener);
    tasks.close();
    if timeout(door.limits.stop_grace, tasks.wait()).await.is_err() {
        tracing::info!("cutting {} connections that did not end in time", tasks.len());
        cut.cancel();
        tasks.wait().await;
    }
}

fn crowd(limits: &Limits) -> Crowd {
    Crowd::new(limits.connections_per_address_max.min(limits.connections_max))
}

fn setup(limits: &Limits) -> http1::Builder {
    let mut setup = http1::Builder::new();
    setup
        .max_headers(limits.headers_max)
        .max_header_size(limits.header_bytes_max)
        .max_buf_size(CONNECTION_BUFFER.max(2 * limits.header_bytes_max));
    setup
}

/// What ends a connection from our side, and its place among the others.
struct Ends {
    stop: CancellationToken,
    cut: CancellationToken,
    _place: (OwnedSemaphorePermit, Seat),
}

async fn opened(socket: TcpStream, door: Arc<Door>, peer: IpAddr, ends: Ends) {
    // Events are small and wanted at once; without this the system would hold them back to join them.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!("TCP_NODELAY: {error}");
    }
    let Some(tls) = &door.tls else { return connection(socket, &door, peer, ends).await };
    let shaken = tokio::select! {
        shaken = timeout(door.limits.header_read, tls.acceptor().accept(socket)) => shaken,
        () = ends.stop.cancelled() => return,
    };
    match shaken {
        Ok(Ok(socket)) => connection(socket, &door, peer, ends).await,
        Ok(Err(error)) => {
            tracing::debug!("no TLS with {peer}: {error}");
            door.refusals.note("tls_failed", peer);
        }
        Err(_) => door.refusals.note("tls_failed", peer),
    }
}

async fn connection<T>(socket: T, door: &Door, peer: IpAddr, ends: Ends)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (limits, progress) = (&door.limits, Arc::new(Progress::default()));
    let waits = Waits { write_stall: limits.write_stall, head: limits.header_read, idle: limits.idle };
    let io = TokioIo::new(Mute::new(Patient::new(socket, waits, Arc::clone(&progress))));
    let served = Served { inner: TowerToHyperService::new(door.router.clone()), peer: Peer(peer), progress };
    let mut serving = setup(limits).serve_connection(io, served);
    let mut serving_now = Pin::new(&mut serving);
    let ended = tokio::select! {
        ended = serving_now.as_mut() => ended,
        () = ends.stop.cancelled() => {
            serving_now.as_mut().graceful_shutdown();
            tokio::select! {
                ended = serving_now => ended,
                () = ends.cut.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended early: {error}");
        let (socket, owed) = serving.into_parts().io.into_inner().into_inner();
        if let Some(rejection) = last_word(&error, owed, socket.gave_up()) {
            door.refusals.note(rejection.code(), peer);
            say_and_close(socket, &rejection, limits).await;
        }
    }
}

/// What to say on a connection that hyper has given up.
fn last_word(error: &hyper::Error, owed: bool, gave_up: Option<Phase>) -> Option<Rejection> {
    if owed && error.is_parse_too_large() {
        return Some(Rejection::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "head_too_large",
            "the address and the headers are longer or more than the daemon takes",
            "send fewer and shorter headers",
        ));
    }
    if owed {
        let detail = "the request is not HTTP/1.1 as it should be";
        return Some(Rejection::new(StatusCode::BAD_REQUEST, "bad_head", detail, "look at its first line and headers"));
    }
    (gave_up == Some(Phase::Head)).then(|| {
        let detail = "the head of the request took too long to arrive";
        Rejection::new(StatusCode::REQUEST_TIMEOUT, "head_timeout", detail, "send the request again")
    })
}

/// Reads on for a moment: to close on a client that still writes would hide the answer from it.
async fn say_and_close<T: AsyncRead + AsyncWrite + Unpin>(mut socket: T, rejection: &Rejection, limits: &Limits) {
    let said = async {
        socket.write_all(&rejection.as_bytes()).await?;
        socket.shutdown().await?;
        let mut dropped = [0; 4096];
        let mut left = limits.drain_bytes_max;
        while left > 0 {
            match socket.read(&mut dropped).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        io::Result::Ok(())
    };
    if let Ok(Err(error)) = timeout(LAST_WORD, said).await {
        tracing::debug!("a last word was not heard: {error}");
    }
}

/// Says why, if that can be done without waiting, and closes.
fn turn_away(socket: &TcpStream, door: &Door, peer: IpAddr) {
    let (detail, hint) = ("the daemon has no room for another connection", "close one");
    let rejection = Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", detail, hint);
    let rejection = rejection.retry_after(Duration::from_secs(1));
    door.refusals.note(rejection.code(), peer);
    // Under TLS nobody would understand.
    if door.tls.is_none()
        && let Err(error) = socket.try_write(&rejection.as_bytes())
    {
        tracing::debug!("a connection over the limit was closed without a word: {error}");
    }
}

/// A connection that was gone before it was taken concerns nobody; a lack of files would make this loop spin.
async fn pause_if_exhausted(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!("cannot take a connection: {error}");
        sleep(ACCEPT_PAUSE).await;
    }
}

/// The router as one connection uses it: requests carry where they come from, and the connection knows when it is busy.
struct Served {
    inner: TowerToHyperService<Router>,
    peer: Peer,
    progress: Arc<Progress>,
}

impl Service<Request<Incoming>> for Served {
    type Response = Response<Answer>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.progress.asked();
        let answered = Answered(Arc::clone(&self.progress));
        request.extensions_mut().insert(self.peer);
        let answer = self.inner.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| Answer { body, _answered: answered })) })
    }
}

/// Tells when an answer has been handed on to its end, or was given up.
struct Answered(Arc<Progress>);

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.answered();
    }
}

struct Answer {
    body: Body,
    _answered: Answered,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
