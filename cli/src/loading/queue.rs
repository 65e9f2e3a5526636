//! The pieces of a delivery that are not confirmed, in the order of the input.
//!
//! ```text
//!   confirmed ◀─┤ answered │ in flight │ unsent ├◀─ offered
//!                ────────── answered
//!                ──────────────────────  sent
//! ```

use std::collections::VecDeque;

use super::ledger::Piece;
use crate::items::Batch;

#[derive(Default)]
pub(super) struct Queue {
    /// The pieces, and how many of their items were new.
    pieces: VecDeque<(Piece, u64)>,
    /// Pieces at the front that the server replied to.
    answered: usize,
    /// Pieces at the front that were sent, the answered ones among them.
    sent: usize,
    /// Bytes of all pieces.
    held: usize,
}

impl Queue {
    pub(super) fn push(&mut self, piece: Piece) {
        self.held += piece.batch.blob.len();
        self.pieces.push_back((piece, 0));
    }

    /// The bytes of all pieces.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The first piece that is not sent.
    pub(super) fn unsent(&self) -> Option<&Batch> {
        self.pieces.get(self.sent).map(|(piece, _)| &piece.batch)
    }

    /// Notes that it is sent.
    pub(super) fn send(&mut self) {
        self.sent += 1;
    }

    /// The number of pieces in flight, and their bytes.
    pub(super) fn in_flight(&self) -> (usize, usize) {
        let pieces = self.pieces.range(self.answered..self.sent);
        (pieces.len(), pieces.map(|(piece, _)| piece.batch.blob.len()).sum())
    }

    /// The items of the first piece in flight.
    pub(super) fn awaited(&self) -> Option<u64> {
        let first = self.pieces.range(self.answered..self.sent).next();
        first.map(|(piece, _)| piece.batch.count)
    }

    /// Notes that the first piece in flight is in the filter.
    pub(super) fn answer(&mut self, new: u64) {
        if let Some((_, found)) = self.pieces.get_mut(self.answered) {
            *found = new;
            self.answered += 1;
        }
    }

    /// Notes that nothing in flight reached the filter, or may be sent again. Returns the items.
    pub(super) fn withdraw(&mut self) -> u64 {
        let pieces = self.pieces.range(self.answered..self.sent);
        let items = pieces.map(|(piece, _)| piece.batch.count).sum();
        self.sent = self.answered;
        items
    }

    /// Notes that what was answered may not be in the filter.
    pub(super) fn doubt(&mut self) {
        self.answered = 0;
    }

    /// Removes the pieces that were answered.
    pub(super) fn confirm(&mut self) -> Vec<(Piece, u64)> {
        let confirmed: Vec<_> = self.pieces.drain(..self.answered).collect();
        self.sent -= confirmed.len();
        self.answered = 0;
        self.held -= confirmed.iter().map(|(piece, _)| piece.batch.blob.len()).sum::<usize>();
        confirmed
    }

    /// The pieces that are not confirmed.
    pub(super) fn into_pieces(self) -> impl Iterator<Item = Piece> {
        self.pieces.into_iter().map(|(piece, _)| piece)
    }
}
