//! Numbers as C writes and reads them (`command/number.rs`).

use redis_bloom::command::number::{any_float, six_digits};

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

#[test]
fn hexadecimal_floats_are_read_as_strtod_reads_them() {
    for (text, number) in [
        ("0x1p-4", Some(0.0625)),
        ("0X1P-4", Some(0.0625)),
        ("+0x.8", Some(0.5)),
        ("0x0.01p+3", Some(0.03125)),
        ("0x1.999999999999ap-4", Some(0.1)),
        ("0x000000000000000000000001p-1", Some(0.5)),
        ("0x1000000000000000000000000p-100", Some(0.0625)),
        ("0x0.00000000000000000000000001p+101", Some(0.125)),
        ("0x0.0000000000001p-1022", Some(f64::from_bits(1))),
        ("0x", None),
        ("0x.", None),
        ("0x1p", None),
        ("0x1g", None),
        ("0x1p99999999999999999999", None),
        ("-0x1p-4", None),
        ("1e-2", Some(0.01)),
        ("nan", None),
    ] {
        assert_eq!(any_float(text.as_bytes()), number, "{text}");
    }
}
