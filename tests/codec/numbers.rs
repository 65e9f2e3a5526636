//! Numbers as C writes them (`command/number.rs`).

use redis_bloom::command::number::six_digits;

/// The expected texts come from glibc.
#[test]
fn six_digits_are_written_as_by_printf() {
    for (number, text) in [
        (0.0, "0"),
        (0.5, "0.5"),
        (0.005, "0.005"),
        (1.0 / 3.0, "0.333333"),
        (0.0001, "0.0001"),
        (0.000_099_999_96, "0.0001"),
        (0.000_099_999_94, "9.99999e-05"),
        (0.00005, "5e-05"),
        (5e-10, "5e-10"),
        (1.234_567_8e-7, "1.23457e-07"),
        (5e-324, "4.94066e-324"),
        (0.999_999_9, "1"),
        (0.25, "0.25"),
        (100.0, "100"),
        (999_999.5, "1e+06"),
        (999_999.4, "999999"),
        (-0.015_625, "-0.015625"),
    ] {
        assert_eq!(six_digits(number), text);
    }
}
