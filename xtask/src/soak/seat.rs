//! One connection to a session's stream whose every item is kept in the session's records.

use std::{sync::Arc, time::Duration};

use super::{
    book::{Book, Place, Sitting, lock},
    world::{World, add},
};
use crate::http::{Connection, Follow, Item};

pub struct Seat<'w> {
    world: &'w World,
    book: Arc<Book>,
    follow: Follow,
    sitting: Sitting,
}

impl<'w> Seat<'w> {
    /// Connects; `None` if no daemon takes it just now. It gives up when nothing comes for `patience`.
    pub fn take(
        world: &'w World,
        book: &Arc<Book>,
        who: &'static str,
        after: Option<Place>,
        patience: Duration,
    ) -> Option<Seat<'w>> {
        let (target, _) = world.setup.target()?;
        let connection = Connection::open(&target).ok()?;
        let follow = match connection.follow(&book.path("/events"), after.map(cursor).as_deref()) {
            Ok(follow) => follow,
            Err(error) => {
                let text = error.to_string();
                if text.contains("refused") && !text.contains("503") && error.kind() == std::io::ErrorKind::Other {
                    world.find(format!("{}: {who} after {after:?}: {text}", book.session));
                }
                return None;
            }
        };
        // Set on the one socket behind all its handles. A wait of no time would be an error.
        let _ =
            follow.socket().and_then(|socket| socket.set_read_timeout(Some(patience.max(Duration::from_millis(1)))));
        add(&world.counts.connections, 1);
        let sitting = Sitting { who, after, places: Vec::new() };
        Some(Seat { world, book: Arc::clone(book), follow, sitting })
    }

    /// The next item; `None` when the connection ended, was cut or was silent for too long.
    pub fn next(&mut self) -> Option<Item> {
        match self.follow.next() {
            Ok(Some(item)) => {
                add(&self.world.counts.events, 1);
                match self.book.keep(&item) {
                    Ok(place) => self.sitting.places.push(place),
                    Err(wrong) => self.world.find(format!("{}: {wrong}", self.book.session)),
                }
                Some(item)
            }
            Ok(None) => None,
            Err(error) if error.is::<std::io::Error>() => None,
            Err(error) => {
                self.world.find(format!("{}: {error:#}", self.book.session));
                None
            }
        }
    }

    /// The last thing it was given.
    pub fn place(&self) -> Option<Place> {
        self.sitting.places.last().copied().or(self.sitting.after)
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let empty = Sitting { who: self.sitting.who, after: None, places: Vec::new() };
        lock(&self.book.sittings).push(std::mem::replace(&mut self.sitting, empty));
    }
}

/// A place as the wire spells it.
pub fn cursor((seq, pos): Place) -> String {
    if pos == 0 { seq.to_string() } else { format!("{seq}.{pos}") }
}
