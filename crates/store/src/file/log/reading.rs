//! Reading an open log: pages of events, and the search for where an event ends. Every line shown is checked first.

use std::io;

use bytes::Bytes;

use super::{Damage, Log};
use crate::{
    Error, Limit, Result, StoredEvent,
    file::lines::{CHUNK_BYTES, Lines, Next, position_of_line_end},
    line::{Checked, LINE_BYTES_MAX, Line, Place, SUM_AT_END_BYTES, seq_of, sum_at_end},
};

/// The search for a place goes on by halves until this few bytes are left; they are then read line by line.
const SEARCH_BYTES: u64 = CHUNK_BYTES as u64;

impl Log {
    /// Events after `after`, up to the limit and to the last one that is synced and undamaged.
    pub fn read(&self, after: u64, limit: Limit) -> Result<Vec<StoredEvent>> {
        let end = {
            let view = self.view();
            let last = view.damage.as_ref().map_or(view.tip.seq, |damage| damage.seq);
            if after >= last {
                return Ok(vec![]);
            }
            view.tip
        };
        match self.place_of(after, &end)? {
            Some(from) => self.read_page(from, &end, limit),
            // The search has met damage below `after`: nothing after it can be shown.
            None => Ok(vec![]),
        }
    }

    /// The end of event `seq` if it ends a decision: a place from which the log can be opened again.
    pub fn decision_end(&self, seq: u64) -> Result<Option<Place>> {
        let end = self.view().tip;
        if seq == end.seq {
            return Ok(Some(end));
        }
        if seq == 0 || seq > end.seq {
            return Ok(None);
        }
        let Some(before) = self.place_of(seq - 1, &end)? else { return Ok(None) };
        let mut lines = Lines::new(&*self.file, before.offset, end.offset, LINE_BYTES_MAX);
        let Next::Line { offset, bytes } = lines.next().map_err(|error| self.unreadable(&error))? else {
            return Ok(None);
        };
        Ok(Line::parse(bytes).filter(|line| line.more == 0).map(|line| line.end(offset)))
    }

    /// Whether an event ends at `offset` whose line has the given sum.
    pub fn has_place(&self, place: &Place) -> Result<bool> {
        let tip = self.view().tip;
        Ok(place.offset <= tip.offset && ends_at(&*self.file, place).map_err(|error| self.unreadable(&error))?)
    }

    fn read_page(&self, from: Place, end: &Place, limit: Limit) -> Result<Vec<StoredEvent>> {
        let mut lines = Lines::new(&*self.file, from.offset, end.offset, LINE_BYTES_MAX);
        let mut place = from;
        let mut events = Vec::new();
        let mut bytes_left = limit.bytes;
        while place.seq < end.seq && events.len() < limit.events.max(1) {
            let next = lines.next().map_err(|error| self.unreadable(&error))?;
            let (line, next) = match follow(next, &place) {
                Ok(followed) => followed,
                Err(why) => {
                    self.set_damage(Damage { seq: place.seq, why });
                    break;
                }
            };
            let json = line.json();
            if json.len() > bytes_left && !events.is_empty() {
                break;
            }
            bytes_left = bytes_left.saturating_sub(json.len());
            events.push(StoredEvent { seq: line.seq, json: Bytes::from(json), more: line.more });
            place = next;
        }
        self.view().bookmark(place);
        Ok(events)
    }

    /// Where event `seq` ends, by what is remembered or by a search; `None` if damage stands in the way.
    fn place_of(&self, seq: u64, end: &Place) -> Result<Option<Place>> {
        let (mut low, mut high) = (Place::START, *end);
        for mark in &self.view().bookmarks {
            if mark.seq <= seq && mark.seq > low.seq {
                low = *mark;
            } else if mark.seq > seq && mark.seq < high.seq {
                high = *mark;
            }
        }
        if low.seq == seq {
            return Ok(Some(low));
        }
        let found = self.search(seq, low.offset, high.offset).map_err(|error| self.unreadable(&error))?;
        match found {
            Some(place) => Ok(Some(place)),
            // A bad line misled the search; going through line by line finds the damage.
            None => self.walk(seq, low, end),
        }
    }

    /// Looks by halves between two line starts for the end of event `seq`. Its own line is not checked here: the line
    /// after it is, by its sum, before anything is shown.
    fn search(&self, seq: u64, mut low: u64, mut high: u64) -> io::Result<Option<Place>> {
        while high - low > SEARCH_BYTES {
            let middle = low + (high - low) / 2;
            match self.line_start_after(middle, high)? {
                Some((offset, found)) if found <= seq => low = offset,
                // No line starts between the middle and the end, or one that comes too late.
                _ => high = middle,
            }
        }
        let end = self.view().tip.offset;
        let mut lines = Lines::new(&*self.file, low, end, LINE_BYTES_MAX);
        loop {
            let Next::Line { offset, bytes } = lines.next()? else { return Ok(None) };
            match seq_of(bytes) {
                Some(found) if found == seq => return Ok(Line::parse(bytes).map(|line| line.end(offset))),
                Some(found) if found > seq => return Ok(None),
                // Damage before what is looked for is found by whoever reads it.
                _ => {}
            }
        }
    }

    /// The first line that starts after `from` and before `to`: where, and its number.
    fn line_start_after(&self, from: u64, to: u64) -> io::Result<Option<(u64, u64)>> {
        let mut chunk = [0; 4096];
        let mut at = from;
        while at < to {
            let read = self.file.read_full_at(&mut chunk, at)?;
            if read == 0 {
                return Ok(None);
            }
            if let Some(found) = position_of_line_end(&chunk[..read]) {
                let start = at + found as u64 + 1;
                let read = self.file.read_full_at(&mut chunk[..64], start)?;
                return Ok(seq_of(&chunk[..read]).filter(|_| start < to).map(|seq| (start, seq)));
            }
            at += read as u64;
        }
        Ok(None)
    }

    /// Goes through the log from `from`, checking every line, until event `seq` ends.
    fn walk(&self, seq: u64, from: Place, end: &Place) -> Result<Option<Place>> {
        let mut lines = Lines::new(&*self.file, from.offset, end.offset, LINE_BYTES_MAX);
        let mut place = from;
        while place.seq < seq {
            let next = lines.next().map_err(|error| self.unreadable(&error))?;
            match follow(next, &place) {
                Ok((_, next)) => place = next,
                Err(why) => {
                    self.set_damage(Damage { seq: place.seq, why });
                    return Ok(None);
                }
            }
        }
        Ok(Some(place))
    }

    fn unreadable(&self, error: &io::Error) -> Error {
        Error::unread(format_args!("the log of {}", self.session), error)
    }
}

/// Checks that what stands next is a line that follows `place`.
fn follow<'b>(next: Next<'b>, place: &Place) -> Checked<(Line<'b>, Place)> {
    let Next::Line { bytes, .. } = next else { return Err("a line is missing or too long".into()) };
    let line = Line::parse(bytes).ok_or("a line has not the form of one")?;
    let next = line.follow(place)?;
    Ok((line, next))
}

/// Whether a line with the place's sum ends at its offset.
pub(crate) fn ends_at(file: &dyn crate::disk::DiskFile, place: &Place) -> io::Result<bool> {
    if *place == Place::START {
        return Ok(true);
    }
    let Some(start) = place.offset.checked_sub(SUM_AT_END_BYTES as u64) else { return Ok(false) };
    let mut bytes = [0; SUM_AT_END_BYTES];
    let read = file.read_full_at(&mut bytes, start)?;
    Ok(read == bytes.len() && sum_at_end(&bytes) == Some(place.sum))
}
