//! Which batches of the input are confirmed, over all deliveries of a load.
//!
//! ```text
//!   batch ──split──▶ pieces of shards 0, 3, 5 ──confirmed──▶ pieces left: 2, 1, 0 ──▶ journal
//! ```
//!
//! A batch of a filter in one key is one piece. The journal of a file records where the last batch
//! before the first unconfirmed one ends.

use std::{
    collections::{HashMap, VecDeque},
    num::NonZeroUsize,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    journal::{Journal, Position},
    proof::Mark,
};
use crate::items::Batch;

/// Time between two remarks about one server.
const SILENCE: Duration = Duration::from_secs(30);

/// A part of a batch, for one filter.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The number of its batch in the ledger.
    pub(crate) number: u64,
    pub(crate) batch: Batch,
}

#[derive(Default)]
pub(crate) struct Ledger {
    books: Mutex<Books>,
    /// Bytes were confirmed.
    freed: Condvar,
}

#[derive(Default)]
struct Books {
    /// The first one has pieces that are not confirmed.
    batches: VecDeque<Open>,
    /// The number of the first of `batches`.
    first: u64,
    /// Bytes of pieces that are not confirmed.
    held: usize,
    /// Items before the first of `batches`.
    before: u64,
    journals: Vec<Option<Journal>>,
    /// The generation that answers, if it took all items so far; 0 for a filter in one key.
    generation: Option<u64>,
    /// When the descriptor becomes too old to confirm items by it; `None` if it never does.
    valid_until: Option<Instant>,
    /// What the filter, or each shard, has at least.
    marks: Vec<Option<Mark>>,
    /// The input has ended: all that is held is to be confirmed.
    ended: bool,
    /// Items that were sent again.
    resent: u64,
    /// When a remark about a server was printed last.
    remarks: HashMap<String, Instant>,
}

/// A batch with pieces that are not confirmed.
struct Open {
    file: usize,
    /// Where it ends in the file, in bytes.
    end: u64,
    count: u64,
    pieces: usize,
}

impl Ledger {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the filters that take the items from now on: the generation that answers, and what
    /// each of its filters has.
    pub(crate) fn begin(
        &self,
        generation: u64,
        marks: Vec<Option<Mark>>,
        valid_until: Option<Instant>,
    ) {
        let mut books = self.books();
        books.describe();
        books.valid_until = valid_until;
        books.marks = marks;
        if books.first == 0 && books.batches.is_empty() {
            books.generation = Some(generation);
        } else if books.generation != Some(generation) {
            books.generation = None;
        }
    }

    /// Notes that the descriptor says the same as before.
    pub(crate) fn extend(&self, valid_until: Option<Instant>) {
        self.books().valid_until = valid_until;
    }

    /// Whether the descriptor is new enough for what was added by it to count.
    pub(crate) fn is_valid(&self) -> bool {
        self.books().valid_until.is_none_or(|until| Instant::now() < until)
    }

    /// A position in a file, with the filters as they are now.
    pub(crate) fn described(&self, position: Position) -> Position {
        let books = self.books();
        Position { generation: books.generation, marks: books.marks.clone(), ..position }
    }

    /// Takes the journals of the files.
    pub(crate) fn keep(&self, journals: Vec<Option<Journal>>) {
        self.books().journals = journals;
    }

    /// Gives the journals back.
    pub(crate) fn journals(&self) -> Vec<Option<Journal>> {
        let mut books = self.books();
        books.describe();
        std::mem::take(&mut books.journals)
    }

    /// Notes a batch of a file that travels in `pieces` pieces with `bytes` bytes. Returns
    /// its number.
    pub(crate) fn open(
        &self,
        file: usize,
        batch: &Batch,
        pieces: NonZeroUsize,
        bytes: usize,
    ) -> u64 {
        let mut books = self.books();
        let (end, count, pieces) = (batch.end, batch.count, pieces.get());
        books.batches.push_back(Open { file, end, count, pieces });
        books.held += bytes;
        books.first + books.batches.len() as u64 - 1
    }

    /// Notes that a piece was split again, into `pieces` pieces with `bytes` bytes: into none, if
    /// its generation was given up.
    pub(crate) fn replace(&self, piece: &Piece, pieces: usize, bytes: usize) {
        let mut books = self.books();
        books.held = (books.held + bytes).saturating_sub(piece.batch.blob.len());
        if let Some(open) = books.batch_mut(piece.number) {
            open.pieces = (open.pieces + pieces).saturating_sub(1);
        }
        books.retire();
    }

    /// Notes that pieces are confirmed: the number of the batch and the bytes of each. Their filter
    /// is the one at `place` of the marks, and has at least what `mark` says.
    pub(crate) fn confirm(
        &self,
        pieces: &[(u64, usize)],
        place: Option<usize>,
        mark: Option<Mark>,
    ) {
        let mut books = self.books();
        for &(number, bytes) in pieces {
            books.held = books.held.saturating_sub(bytes);
            if let Some(open) = books.batch_mut(number) {
                open.pieces = open.pieces.saturating_sub(1);
            }
        }
        if let Some(found) = place.and_then(|place| books.marks.get_mut(place)) {
            *found = mark;
        }
        books.retire();
        drop(books);
        self.freed.notify_all();
    }

    /// Waits until less than `limit` bytes are not confirmed, or for a moment.
    pub(crate) fn has_room(&self, limit: usize, moment: Duration) -> bool {
        let books = self.books();
        let full = |books: &mut Books| books.held >= limit;
        let waited = self.freed.wait_timeout_while(books, moment, full);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Notes that the input has ended.
    pub(crate) fn end(&self) {
        self.books().ended = true;
    }

    /// Whether the reader waits until bytes are confirmed: `limit` bytes or more are unconfirmed,
    /// or the input has ended.
    pub(crate) fn awaits(&self, limit: usize) -> bool {
        let books = self.books();
        books.ended || books.held >= limit
    }

    /// Notes that items are sent again.
    pub(crate) fn resend(&self, items: u64) {
        self.books().resent += items;
    }

    /// Items that were sent again.
    pub(crate) fn resent(&self) -> u64 {
        self.books().resent
    }

    /// Whether to print that a server cannot be reached: not if another delivery just did.
    pub(crate) fn may_remark(&self, server: String) -> bool {
        let now = Instant::now();
        let earlier = self.books().remarks.insert(server, now);
        earlier.is_none_or(|earlier| now.duration_since(earlier) > SILENCE)
    }

    /// Items before the first batch that is not confirmed.
    pub(crate) fn before(&self) -> u64 {
        self.books().before
    }
}

impl Books {
    fn batch_mut(&mut self, number: u64) -> Option<&mut Open> {
        self.batches.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Notes in the journals which filters have the items.
    fn describe(&mut self) {
        let journals = self.journals.iter_mut().flatten();
        journals.for_each(|journal| journal.describe(self.generation, &self.marks));
    }

    /// Notes in the journals which batches at the front are confirmed.
    fn retire(&mut self) {
        while let Some(Open { pieces: 0, .. }) = self.batches.front()
            && let Some(open) = self.batches.pop_front()
        {
            self.first += 1;
            self.before += open.count;
            let followed = self.batches.front();
            let last = followed.is_none_or(|next| next.pieces > 0 || next.file != open.file);
            if let Some(Some(journal)) = self.journals.get_mut(open.file) {
                journal.advance(open.count, open.end);
                if last {
                    journal.keep(self.generation, &self.marks);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::Packing;

    fn open(ledger: &Ledger, count: u64, pieces: usize, bytes: usize) -> Piece {
        let (packing, blob) = (Packing::Lines, vec![0; bytes]);
        let batch = Batch { packing, blob, count, end: 0 };
        let pieces = NonZeroUsize::new(pieces).expect("pieces");
        Piece { number: ledger.open(0, &batch, pieces, bytes), batch }
    }

    /// A generation that came later lacks the items before it, also once it is the current one.
    #[test]
    fn a_generation_that_came_during_the_load_does_not_have_all_items() {
        let generation = |ledger: &Ledger| ledger.described(Position::default()).generation;
        let ledger = Ledger::default();
        ledger.begin(1, vec![], None);
        ledger.begin(2, vec![], None);
        assert_eq!(generation(&ledger), Some(2), "nothing was loaded before");
        open(&ledger, 10, 2, 50);
        ledger.begin(2, vec![], None);
        assert_eq!(generation(&ledger), Some(2));
        ledger.begin(3, vec![], None);
        ledger.begin(2, vec![], None);
        assert_eq!(generation(&ledger), None);
    }
}
