//! Takes connections and lets them go: how many, how long, and how they end when the daemon stops.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{http::problem, limits::Limits, patient::Patient};

/// How long to wait when the system has no more files or memory to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What one connection may hold of requests and answers on their way.
const CONNECTION_BUFFER: usize = 64 * 1024;

/// Serves every connection until `stop`, then waits for those under way.
pub(crate) async fn until_stopped(listener: TcpListener, router: Router, limits: &Limits, stop: CancellationToken) {
    let free = Arc::new(Semaphore::new(limits.connections_max));
    let tasks = TaskTracker::new();
    let cut = CancellationToken::new();
    let setup = setup(limits);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                pause_if_exhausted(&error).await;
                continue;
            }
        };
        match Arc::clone(&free).try_acquire_owned() {
            Ok(permit) => {
                let ends = Ends { stop: stop.clone(), cut: cut.clone(), permit };
                tasks.spawn(connection(socket, setup.clone(), router.clone(), limits.write_stall, ends));
            }
            Err(_) => turn_away(&socket),
        }
    }
    drop(listener);
    tasks.close();
    if timeout(limits.stop_grace, tasks.wait()).await.is_err() {
        tracing::info!("cutting {} connections that did not end in time", tasks.len());
        cut.cancel();
        tasks.wait().await;
    }
}

fn setup(limits: &Limits) -> http1::Builder {
    let mut setup = http1::Builder::new();
    setup
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read)
        .max_headers(limits.headers_max)
        .max_header_size(limits.header_bytes_max)
        .max_buf_size(CONNECTION_BUFFER.max(2 * limits.header_bytes_max));
    setup
}

/// What ends a connection from our side, and its place among the others.
struct Ends {
    stop: CancellationToken,
    cut: CancellationToken,
    permit: OwnedSemaphorePermit,
}

async fn connection(socket: TcpStream, setup: http1::Builder, router: Router, write_stall: Duration, ends: Ends) {
    // Events are small and wanted at once; without this the system would hold them back to join them.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!("TCP_NODELAY: {error}");
    }
    let io = TokioIo::new(Patient::new(socket, write_stall));
    let mut serving = std::pin::pin!(setup.serve_connection(io, TowerToHyperService::new(router)));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = ends.stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                ended = serving => ended,
                () = ends.cut.cancelled() => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended early: {error}");
    }
    drop(ends.permit);
}

/// Says why, if that can be done without waiting, and closes.
fn turn_away(socket: &TcpStream) {
    let answer = problem::too_many_connections();
    if let Err(error) = socket.try_write(&answer) {
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
