//! The last word: every session as a fresh reader is given it, against all that clients were told and shown and all that its tools did.

mod commands;
mod effects;
mod stream;
mod turns;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::Value;

use super::{book::Book, world::World};
use crate::{http::Item, reader::read_all};

/// Sessions that are checked side by side.
const CHECKERS: usize = 4;

/// A session's whole stream as it is given now.
pub struct Fresh {
    pub items: Vec<Item>,
    /// The numbered ones.
    pub events: Vec<Value>,
}

impl Fresh {
    fn read(world: &World, book: &Book) -> anyhow::Result<Fresh> {
        let items = read_all(&world.setup, &book.session)?;
        let numbered = items.iter().filter(|item| item.is_numbered());
        let events = numbered.map(Item::event).collect::<anyhow::Result<_>>()?;
        Ok(Fresh { items, events })
    }

    /// Events of some types with their data.
    pub fn of<'f>(&'f self, types: &'f [&'f str]) -> impl Iterator<Item = (&'f Value, &'f Value)> {
        let fits = |event: &&Value| event["type"].as_str().is_some_and(|kind| types.contains(&kind));
        self.events.iter().filter(fits).map(|event| (event, &event["data"]))
    }
}

/// Checks every session; what is wrong becomes findings.
pub fn check_all(world: &World) {
    let (books, next) = (world.all_books(), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..CHECKERS {
            scope.spawn(|| {
                while let Some(book) = books.get(next.fetch_add(1, Ordering::Relaxed))
                    && !world.is_interrupted()
                {
                    check(world, book);
                }
            });
        }
    });
}

fn check(world: &World, book: &Arc<Book>) {
    let fresh = match Fresh::read(world, book) {
        Ok(fresh) => fresh,
        Err(error) => return world.find(format!("{}: cannot be read: {error:#}", book.session)),
    };
    stream::check(world, book, &fresh);
    commands::check(world, book, &fresh);
    turns::check(world, book, &fresh);
    effects::check(world, book, &fresh);
    // Last, since these are requests: they must change nothing.
    commands::repeat(world, book, &fresh);
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
