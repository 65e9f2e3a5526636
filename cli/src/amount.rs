//! Amounts as people write and read them: `10G` items, `256mb`, a rate of `0.1%`.

use std::time::Duration;

use bloom::filter::Span;

/// Reads a number of items: `1000`, `10k`, `2.5M`, `10G`, `1T`; a thousand is 1000.
pub(crate) fn items(text: &str) -> Result<u64, String> {
    let units = [("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000), ("t", 1_000_000_000_000)];
    let read = scaled(&text.to_ascii_lowercase(), &units);
    read.ok_or_else(|| format!("{text}: not a number such as 1000, 2.5M or 10G"))
}

/// Reads a number of items above 0.
pub(crate) fn positive_items(text: &str) -> Result<u64, String> {
    match items(text)? {
        0 => Err("at least 1".to_owned()),
        items => Ok(items),
    }
}

/// Reads a number of bytes with the units of `redis.conf`: `256mb` is 256 times 1024 squared,
/// `256m` is 256 million.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let units = [
        ("kb", 1 << 10),
        ("mb", 1 << 20),
        ("gb", 1 << 30),
        ("tb", 1 << 40),
        ("k", 1_000),
        ("m", 1_000_000),
        ("g", 1_000_000_000),
        ("t", 1_000_000_000_000),
        ("b", 1),
    ];
    let read = scaled(&text.to_ascii_lowercase(), &units);
    read.ok_or_else(|| format!("{text}: not a size such as 256mb or 1gb"))
}

/// Reads a rate in (0, 1): `0.001`, `1e-3` or `0.1%`.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    number
        .ok()
        .filter(|rate| 0.0 < *rate && *rate < 1.0)
        .ok_or_else(|| format!("{text}: not a rate between 0 and 1, such as 0.001 or 0.1%"))
}

/// Times are shorter than this, in milliseconds.
const LONGEST: u64 = 1_000_000_000_000;
/// Milliseconds of a day.
const DAY: u64 = 86_400_000;
/// Units of times, in milliseconds; seconds if there is none.
const TIMES: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", DAY), ("", 1_000)];

/// Reads a time: `500ms`, `60s`, `1.5m`, `1h`, `7d`; seconds if there is no unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    scaled(text, &TIMES)
        .filter(|&milliseconds| milliseconds < LONGEST)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{text}: not a time such as 500ms, 60s or 5m"))
}

/// Reads a time above 0.
pub(crate) fn positive_time(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("at least 1ms".to_owned()),
        time => Ok(time),
    }
}

/// The number before the unit, times the unit; `None` unless that is a whole number below 2^64. The
/// first unit that fits is taken. A number without a unit is not multiplied.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let suffixed = |&(name, factor): &(&str, u64)| Some((text.strip_suffix(name)?, factor));
    let (number, factor) = units.iter().find_map(suffixed).unwrap_or((text, 1));
    let number = number.trim_end();
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let product = number.parse::<f64>().ok()? * factor as f64;
    // The double of 4.1M is a little below a whole number.
    let whole = product.round();
    let is_whole = (product - whole).abs() <= product * 1e-12 && whole < u64::MAX as f64;
    is_whole.then_some(whole as u64)
}

/// A number of bytes in decimal units, as `303.5 MB`.
pub(crate) fn readable_bytes(bytes: u64) -> String {
    readable(bytes, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// A whole number with its thousands apart, as `78,125,000`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// A number of things, as `1 shard` or `1,024 shards`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// A number of items in decimal units, as `9.99 G`.
pub(crate) fn readable_items(items: u64) -> String {
    readable(items, &["", "k", "M", "G", "T", "P", "E"]).trim_end().to_owned()
}

/// Three to four digits and a unit.
fn readable(amount: u64, units: &[&str]) -> String {
    if amount < 1000 {
        return format!("{amount} {}", units[0]);
    }
    let mut scaled = amount as f64;
    let mut unit = 0;
    // 999.95 would be written as 1000.0.
    while scaled >= 999.95 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let decimals = if scaled < 9.995 { 2 } else { 1 };
    format!("{scaled:.decimals$} {}", units[unit])
}

/// A time in its largest unit that has no fraction, as `90m`, `24h` or `7d`.
pub(crate) fn readable_time(milliseconds: u64) -> String {
    let fits = |&&(_, factor): &&(&str, u64)| {
        milliseconds.is_multiple_of(factor) && (factor < DAY || milliseconds > DAY)
    };
    let (unit, factor) = TIMES[..5].iter().rev().find(fits).copied().unwrap_or(("ms", 1));
    format!("{}{unit}", milliseconds / factor)
}

/// What a window remembers, as `24h` or `count`.
pub(crate) fn readable_span(span: Span) -> String {
    match span {
        Span::Time(milliseconds) => readable_time(milliseconds),
        Span::Items => "count".to_owned(),
    }
}

/// A rate in percent with two significant digits, as `0.074 %`.
pub(crate) fn readable_rate(rate: f64) -> String {
    let percent = rate * 100.0;
    if percent == 0.0 {
        return "0 %".to_owned();
    }
    let magnitude = percent.abs().log10().floor();
    if magnitude < -5.0 {
        return format!("{percent:.1e} %");
    }
    let decimals = (1.0 - magnitude).max(0.0) as usize;
    let digits = format!("{percent:.decimals$}");
    let shortened = if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        &digits
    };
    format!("{shortened} %")
}

/// Like [`readable_rate`], of a rate that a server may not report.
pub(crate) fn known_rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), readable_rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_with_their_units() {
        for (text, expected) in [
            ("0", 0),
            ("1000", 1000),
            ("10k", 10_000),
            ("2.5M", 2_500_000),
            ("10G", 10_000_000_000),
            // Doubles make 4099999.9999999995 and the like of these.
            ("4.1M", 4_100_000),
            ("16.1k", 16_100),
            ("2.01M", 2_010_000),
            ("1.001G", 1_001_000_000),
            ("9.99 G", 9_990_000_000),
            (".5k", 500),
            ("1.50e3", 1_500),
            ("1e-3M", 1_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(items(text), Ok(expected), "{text}");
        }
        for (text, expected) in
            [("1kb", 1024), ("256mb", 256 << 20), ("256m", 256_000_000), ("512", 512), ("7b", 7)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        // Each thousandth of a unit. Few of them are exact as doubles.
        for number in 0..10_000 {
            let text = format!("{}.{:03}M", number / 1_000, number % 1_000);
            assert_eq!(items(&text), Ok(number * 1_000), "{text}");
        }
        let wrong = "| .|-1|1.5|1.0001k|1.-5k|k|1e|1e30|1e-1|nan|inf|10 G G|1.2.3k|\
                     99999999999999999999|18446744073709551616";
        for text in wrong.split('|') {
            assert!(items(text).is_err(), "{text}");
        }
        for (text, expected) in [("0.001", 0.001), ("1e-3", 0.001), ("0.1%", 0.001), ("1 %", 0.01)]
        {
            assert_eq!(rate(text), Ok(expected), "{text}");
        }
        for text in ["0", "1", "100%", "nan", "-0.1", "x"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for (text, expected) in [
            ("500ms", 500),
            ("60s", 60_000),
            ("1.5m", 90_000),
            ("4.1s", 4_100),
            ("1.001", 1_001),
            ("2 h", 7_200_000),
            ("1h", 3_600_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(expected)), "{text}");
        }
        for text in ["", "s", "-1s", "nan", "1w", "1e30", "0.5ms", "1000000000s"] {
            assert!(time(text).is_err(), "{text}");
        }
        for text in ["0", "0s"] {
            assert_eq!(time(text), Ok(Duration::ZERO), "{text}");
            assert!(positive_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_are_written_with_their_units() {
        for (amount, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (303_500_000, "303.5 MB"),
            (999_949_999, "999.9 MB"),
            (999_950_000, "1.00 GB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(readable_bytes(amount), expected);
        }
        assert_eq!(readable_items(9_990_000_000), "9.99 G");
        assert_eq!(readable_items(12), "12");
        for (number, expected) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (78_125_000, "78,125,000")]
        {
            assert_eq!(grouped(number), expected);
        }
        for (time, expected) in [
            (1, "1ms"),
            (1_500, "1500ms"),
            (90_000, "90s"),
            (86_400_000, "24h"),
            (604_800_000, "7d"),
        ] {
            assert_eq!(readable_time(time), expected);
        }
        for (rate, expected) in [
            (0.01, "1 %"),
            (0.001, "0.1 %"),
            (0.000_74, "0.074 %"),
            (0.5, "50 %"),
            (1e-9, "1.0e-7 %"),
        ] {
            assert_eq!(readable_rate(rate), expected);
        }
    }
}
