//! The rate that follows from the numbers of a plan, without items.

use redis_bloom::filter::pages::{Growth, Payload, Plan};

/// Buckets of a page.
const PAGE_BUCKETS: f64 = 1984.0;

fn planned(rate: f64, capacity: u64, growth: Growth) -> Plan {
    Plan::new(rate, capacity, growth, Payload::Nothing).expect("a rate in range")
}

/// The exact sum for a plan after growing from its first pages to `doublings` times twice as
/// many, with the rate of each level weighed by the items that come at it.
fn rate(plan: &Plan, doublings: u32) -> f64 {
    let weight = |level: u32| {
        // An item has no more bits than its hash.
        let bits = (u32::from(plan.format(level).tag_bits) + level).min(u64::BITS);
        0.5_f64.powi(bits as i32) / PAGE_BUCKETS
    };
    let first = plan.first_pages.ilog2();
    let mut sum = 0.0;
    let count = f64::from(plan.page_slots);
    // Items of the first pages: the split ones, and the others.
    let (all, split) = (f64::from(plan.first_pages), plan.first_pages - (1 << first));
    let share = f64::from(split) / f64::from(1_u32 << first);
    sum += count * all * ((1.0 - share) * weight(first) + share * weight(first + 1));
    let mut pages = u64::from(plan.first_pages);
    while pages < u64::from(plan.first_pages) << doublings {
        let level = pages.ilog2();
        // In steps of a hundredth of a doubling, with the share of split pages at the end.
        let next = pages + (1_u64 << level).div_ceil(100).min((2 << level) - pages);
        let share = (next - (1 << level)) as f64 / (1_u64 << level) as f64;
        let weight = (1.0 - share) * weight(level) + share * weight(level + 1);
        sum += count * (next - pages) as f64 * weight;
        pages = next;
    }
    sum
}

#[test]
fn the_sum_over_all_items_stays_below_the_rate() {
    for asked in [0.25, 0.1, 0.01, 0.001, 1e-6, 1e-9, 1e-10, 1e-11, 1e-12, 2.5e-13] {
        for capacity in [0, 1, 100_000, 1_000_000, 1_234_567] {
            for growth in [Growth::Never, Growth::Doublings(4), Growth::Endless] {
                // Only pages above a layer have a lower rate.
                if asked < 1e-12 && (growth, capacity) != (Growth::Endless, 0) {
                    continue;
                }
                let plan = planned(asked, capacity, growth);
                let most = match growth {
                    Growth::Never => 0,
                    // To a billion items.
                    _ if asked < 1e-6 => 29 - plan.most_slots(plan.first_pages.into()).ilog2(),
                    _ => 24,
                };
                for doublings in 0..=most {
                    let rate = rate(&plan, doublings);
                    assert!(rate <= asked, "{plan:?}: {rate} after {doublings} doublings");
                }
                // Of what the first pages leave, at least a third is used in the end: the rest
                // is what rounding to whole bits costs, and doublings that are not tried.
                assert!(rate(&plan, most) >= 0.4 * asked, "{plan:?}: {}", rate(&plan, most));
            }
        }
    }
}

#[test]
fn tags_have_the_lengths_of_the_design() {
    let bits = |rate, growth| planned(rate, 1_000_000, growth).tag_bits;
    assert_eq!((bits(0.01, Growth::Endless), bits(0.001, Growth::Endless)), (11, 14));
    assert_eq!((bits(0.01, Growth::Doublings(4)), bits(0.01, Growth::Never)), (9, 7));
}
