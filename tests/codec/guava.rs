//! Guava filters: each answer is Guava's, before and after more additions. All other bytes are
//! refused.
//!
//! Guava itself wrote the files `tests/fixtures/guava-31-*`. A file `.answers` has lines of a word
//! and its value:
//!
//! ```text
//!   strategy, capacity, rate    the parameters of the filter
//!   added N                     items item-0 to item-(N-1) were added (put)
//!   count N                     approximateElementCount after that
//!   present DIGITS              mightContain of absent-0 to absent-3999
//!   utf8 DIGITS                 mightContain of 200 items that are not ASCII
//!   later DIGITS                put of later-0 to later-99: whether a bit changed
//!   present-later DIGITS        mightContain of absent-0 to absent-3999 after that
//! ```

use redis_bloom::{
    codec::{Error, guava},
    filter::{Error as FilterError, Family, Filter, Shape},
};

use crate::{allocation::peak, redisbloom::product::file, sane, support::Strings};

const WRITTEN: [&str; 5] = ["mitz32", "mitz64", "mitz64-low", "mitz32-full", "mitz64-empty"];

struct Answers {
    text: String,
}

impl Answers {
    fn of(name: &str) -> Self {
        let text = file(&format!("guava-31-{name}.answers"));
        Self { text: String::from_utf8(text).expect("text") }
    }

    #[track_caller]
    fn word(&self, name: &str) -> &str {
        let line = self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}"))
    }

    #[track_caller]
    fn number<T: std::str::FromStr>(&self, name: &str) -> T {
        self.word(name).parse().ok().unwrap_or_else(|| panic!("{name} is no number"))
    }
}

fn bytes(name: &str) -> Vec<u8> {
    file(&format!("guava-31-{name}.bin"))
}

fn digits(filter: &Filter, prefix: &str, count: usize) -> String {
    let items: Vec<_> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
    let mut digits = String::new();
    filter.contains_each(items.iter().map(String::as_bytes), |found| {
        digits.extend(found.each().map(|found| if found { '1' } else { '0' }));
    });
    digits
}

/// Compares the answers with Guava's, before and after the later items are added. Stops when the
/// filter is full.
#[track_caller]
fn check_answers(mut filter: Filter, answers: &Answers, name: &str) {
    assert_eq!((filter.family(), filter.expansion().factor()), (Family::Guava, None), "{name}");
    let added = answers.number("added");
    assert_eq!(digits(&filter, "item", added), "1".repeat(added), "{name}");
    assert_eq!(digits(&filter, "absent", 4_000), answers.word("present"), "{name}");
    assert_eq!(digits(&filter, "\u{fc}\u{4e2d}", 200), answers.word("utf8"), "{name}");
    let again = Strings::of(&filter).filter();
    assert_eq!(Strings::of(&again), Strings::of(&filter), "{name}");
    let room = filter.capacity() - filter.items();
    let mut taken = 0;
    for (number, expected) in answers.word("later").chars().enumerate() {
        let item = format!("later-{number}");
        match filter.add(filter.hash(item.as_bytes()), |_| u64::MAX) {
            Ok(new) => {
                assert_eq!(new, expected == '1', "{name}: {item}");
                taken += u64::from(new);
            }
            Err(error) => {
                assert_eq!((error, taken), (FilterError::Full, room), "{name}: {item}");
                return;
            }
        }
    }
    assert_eq!(digits(&filter, "absent", 4_000), answers.word("present-later"), "{name}");
    sane::check_filter(&mut filter, u64::MAX);
}

#[test]
fn guava_filters_answer_as_in_guava() {
    for name in WRITTEN {
        let answers = Answers::of(name);
        let filter = guava::read(&bytes(name), u64::MAX).unwrap_or_else(|e| panic!("{name}: {e}"));
        let count: i64 = answers.number("count");
        let (items, most) = (filter.items() as i64, filter.capacity() as i64);
        assert!(items.abs_diff(count.min(most)) <= 1, "{name}: {items} of {count}");
        check_answers(filter, &answers, name);
    }
}

#[test]
fn a_filter_gets_the_capacity_and_the_rate_of_its_design_point() {
    // Made for 1,000 items at 0.03. 115 longs and 5 probes: 1,020 items set half of the 7,360
    // bits; the rate is 2^-5.
    let computed = guava::read(&bytes("mitz64"), u64::MAX).expect("a filter");
    assert_eq!((computed.capacity(), computed.error_rate()), (1_020, 0.031_25));
}

#[test]
fn bytes_that_guava_does_not_write_are_refused_in_bounded_memory() {
    let good = bytes("mitz32");
    let with = |at: usize, new: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    let mut cases =
        vec![with(0, &[2]), with(0, &[0xff]), with(1, &[0]), [good.as_slice(), &[0]].concat()];
    for longs in [0_i32, 1, 114, 116, 1 << 24, i32::MAX, -1, i32::MIN] {
        cases.push(with(2, &longs.to_be_bytes()));
    }
    cases.extend((0..good.len()).map(|length| good[..length].to_vec()));
    cases.push([good.as_slice(), &[0; 8]].concat());
    for case in &cases {
        let (refused, memory) = peak(|| guava::read(case, u64::MAX).map(|filter| filter.items()));
        assert!(refused.is_err(), "{:?} and {} bytes", &case[..case.len().min(6)], case.len());
        assert!(memory < 16 << 10, "{memory} bytes");
    }
    // Every number of probes from 1 to 255 is valid.
    let many = guava::read(&with(1, &[255]), u64::MAX).expect("a filter");
    let Shape::Classic(shape) = many.newest().shape() else {
        panic!("{:?}", many.newest().shape());
    };
    assert_eq!(shape.probes, 255);
    let refused = guava::read(&good, 100).map(|filter| filter.items());
    let (wanted, ceiling) = (920, 100);
    assert_eq!(refused, Err(Error::Filter(FilterError::Ceiling { wanted, ceiling })));
}
