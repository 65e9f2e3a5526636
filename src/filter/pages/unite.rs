//! The union of two structures of equal plans: the slots of the smaller one move into the larger.
//!
//! The larger structure has at least as high levels, so nothing is lost. Where one tag is the
//! beginning of another in the same bucket, the shorter stands for both, and their counts add up. A
//! tag that is used up goes to each page that its items may belong to.
//!
//! The numbers of copies are added, less the copies that meet a void slot. So [`Pages::items`] may
//! count an item once too often if one structure has a copied void slot for it.

use super::{
    Pages, Place, Slot, block, marker,
    page::{Page, Spot},
    slot::Format,
    words::{Select, low, with_select},
};
use crate::filter::error::{Error, Unmergeable};

impl Pages {
    /// Adds the slots of another structure, which has at most as many pages and no generations.
    /// `left` is the work that is allowed. Adding a slot to a page takes 1 of it, and so does a
    /// comparison with 32 slots, because a forged structure needs hundreds for each slot.
    ///
    /// # Errors
    /// `Error::OutOfMemory`, or `Unmergeable::Large` if nothing is left: some slots were added
    /// then, and this structure is no longer sound.
    pub(in crate::filter) fn unite(&mut self, other: &Self, left: &mut u64) -> Result<(), Error> {
        let (mut copies, mut met) = (other.copies, 0);
        with_select!(select => other.slots().try_for_each(|slot| {
            let (pages, voids, compared) = self.unite_slot(select, slot)?;
            *left = left.checked_sub(pages + compared / 32).ok_or(Unmergeable::Large)?;
            copies += pages - 1;
            met += voids;
            Ok::<_, Error>(())
        }))?;
        let met = copies.min(self.copies).min(met);
        self.copies = (self.copies + copies - met).min(self.slots);
        Ok(())
    }

    /// Adds a slot. Returns how many pages got it, how many void slots it was merged with, and with
    /// how many slots it was compared.
    #[inline(always)]
    fn unite_slot(&mut self, select: impl Select, slot: Slot) -> Result<(u64, u64, u64), Error> {
        let (plan, merge) = (self.plan, self.merging());
        let count = self.table.len();
        let (first, step) = if u32::from(slot.known) > count.ilog2() {
            (self.levels.page(slot.block, count).0, count)
        } else {
            (slot.block as usize, 1 << slot.known)
        };
        let (mut pages, mut voids, mut compared) = (0, 0, 0);
        let copied = first + step < count;
        let payload = if copied { plan.payload.most() } else { slot.payload };
        for number in (first..count).step_by(step) {
            let (_, level) = self.levels.page(number as u64, count);
            let (page, format) = (&mut self.table[number], plan.format(level));
            let before = page.allocated();
            let (met, void, slots) =
                page.unite(select, format, level, Slot { payload, ..slot }, &merge)?;
            super::resized(&mut self.bytes, before, page);
            self.slots = self.slots + 1 - met;
            pages += 1;
            voids += u64::from(void);
            compared += slots;
        }
        if self.slots > plan.most_slots(count as u64) {
            self.split()?;
        }
        Ok((pages, voids, compared))
    }

    /// Gives longer tags to all levels to come, as if no more doublings were planned.
    pub(in crate::filter) fn plan_no_doublings(&mut self) {
        let first = self.plan.first_pages.ilog2();
        let upper = u32::from(self.levels.level) + 1;
        let doublings = upper.saturating_sub(first) as u8;
        self.plan.doublings = self.plan.doublings.min(doublings);
    }
}

impl Page {
    /// Adds a slot to a page of a level. Returns how many slots it was merged with, whether two
    /// void slots were merged, and with how many slots it was compared.
    #[inline(always)]
    fn unite(
        &mut self,
        select: impl Select,
        format: Format,
        level: u32,
        Slot { place, block, known, payload }: Slot,
        merge: impl Fn(u64, u64) -> u64,
    ) -> Result<(u64, bool, u64), Error> {
        let len = usize::from(known).saturating_sub(level as usize).min(format.tag_bits.into());
        let tag = block >> level & low(len) | 1 << len;
        let spot = |page: &Self| page.spot(format, Place(place), tag);
        let here = spot(self);
        let Spot { format, tag, bucket, .. } = here;
        let (indices, end) = block::bounds(select, self.block(here.words()), bucket);
        let (mut payload, mut slots, mut kept) = (payload, 0, None);
        let compared = indices.len() as u64;
        // From the last one down: what lies below a removed slot does not move.
        for index in indices.rev() {
            let slot = block::slot(self.block(spot(self).words()), format, index);
            let (other, before) = (format.tag(slot), format.payload(slot));
            if (other ^ tag) & low(marker(tag).min(marker(other))) != 0 {
                continue;
            }
            payload = merge(before, payload);
            if marker(other) <= marker(tag) {
                // It is the only one that matches, and stands for both.
                self.set_slot(spot(self), index, format.with_payload(other, payload));
                return Ok((1, len == 0, compared));
            }
            // One of them is kept until it is overwritten: removing the last slot would change the
            // format of the page.
            if let Some(later) = kept {
                self.remove(select, spot(self), later);
            }
            (kept, slots) = (Some(index), slots + 1);
        }
        let slot = format.with_payload(tag, payload);
        match kept {
            Some(index) => self.set_slot(spot(self), index, slot),
            None => self.insert(select, spot(self), end, slot)?,
        }
        Ok((slots, false, compared))
    }
}
