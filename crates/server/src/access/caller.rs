//! Who a request comes from, once that is known.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use tenure_core::event::{Actor, ActorKind};
use tokio_util::sync::CancellationToken;

use super::{OWNER, rates::Bucket};
use crate::http::problem::{Rejection, internal};

/// What a request showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    Token,
    /// A browser that was let in by a link.
    Cookie,
}

#[derive(Clone)]
pub(crate) struct Caller {
    /// The name of the token, also for a browser that came by a link of it.
    pub(crate) name: Arc<str>,
    pub(crate) via: Via,
    /// Ends with what the request showed, and with the daemon: streams end with it.
    pub(crate) life: CancellationToken,
    pub(crate) bucket: Arc<Bucket>,
}

impl Caller {
    pub(crate) fn actor(&self) -> Actor {
        let surface = match self.via {
            Via::Token => "http",
            Via::Cookie => "page",
        };
        Actor { kind: ActorKind::User, id: Some(self.name.to_string()), surface: Some(surface.into()) }
    }

    /// Tokens are the business of the daemon's own token alone: what leaks from a browser or a program makes no new ones.
    pub(crate) fn may_manage(&self) -> Result<(), Rejection> {
        match (&*self.name, self.via) {
            (OWNER, Via::Token) => Ok(()),
            _ => Err(Rejection::new(
                StatusCode::FORBIDDEN,
                "not_allowed",
                "only the daemon's own token may manage tokens",
                "use `tenure token` on the daemon's machine, or the content of the file 'token' in the data folder",
            )),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
        parts.extensions.get::<Caller>().cloned().ok_or_else(|| internal("a request came past the door unseen"))
    }
}
