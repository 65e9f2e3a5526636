//! Decodes RESP2 and RESP3 bytes into a `Reply`. Every malformed reply is an error, because many
//! tests exist to catch a module that announces five elements and sends four.

use std::io::{self, BufRead};

use super::reply::Reply;

pub fn read_reply(from: &mut impl BufRead) -> io::Result<Reply> {
    let line = read_line(from)?;
    let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed("an empty line"))?;
    Ok(match kind {
        "+" => Reply::Simple(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Int(number(rest)?),
        "$" => match number(rest)? {
            -1 => Reply::Null,
            length => Reply::Bulk(read_bytes(from, length)?),
        },
        "*" => match number(rest)? {
            -1 => Reply::NullArray,
            length => Reply::Array(read_elements(from, length)?),
        },
        "_" => Reply::Null,
        "#" => match rest {
            "t" => Reply::Bool(true),
            "f" => Reply::Bool(false),
            other => return Err(malformed(other)),
        },
        "," => Reply::Double(rest.parse().map_err(|_| malformed(rest))?),
        "~" => Reply::Set(read_elements(from, number(rest)?)?),
        ">" => Reply::Push(read_elements(from, number(rest)?)?),
        "%" => {
            let pairs = number(rest)?;
            let mut entries = Vec::new();
            for _ in 0..pairs {
                entries.push((read_reply(from)?, read_reply(from)?));
            }
            Reply::Map(entries)
        }
        "=" => {
            let bytes = read_bytes(from, number(rest)?)?;
            // The first four bytes name the format: `txt:` or `mkd:`.
            let text = bytes.get(4..).ok_or_else(|| malformed("a short verbatim string"))?;
            Reply::Verbatim(String::from_utf8_lossy(text).into_owned())
        }
        "(" => Reply::BigNumber(rest.to_owned()),
        _ => return Err(malformed(&line)),
    })
}

fn read_elements(from: &mut impl BufRead, length: i64) -> io::Result<Vec<Reply>> {
    (0..length).map(|_| read_reply(from)).collect()
}

/// Reads `length` bytes and the CRLF after them.
fn read_bytes(from: &mut impl BufRead, length: i64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(|_| malformed("a negative length"))?;
    let mut bytes = vec![0; length + 2];
    from.read_exact(&mut bytes)?;
    if !bytes.ends_with(b"\r\n") {
        return Err(malformed("a bulk string without its CRLF"));
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// Reads a line and removes its CRLF.
fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    if from.read_until(b'\n', &mut line)? == 0 {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the server closed the connection",
        ));
    }
    let text = line.strip_suffix(b"\r\n").ok_or_else(|| malformed("a line without CRLF"))?;
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| malformed(text))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed reply: {what:?}"))
}

#[test]
fn every_wire_type_is_read_as_itself() {
    let cases: [(&str, Reply); 16] = [
        ("+OK\r\n", Reply::Simple("OK".into())),
        ("-ERR x\r\n", Reply::Error("ERR x".into())),
        (":-7\r\n", Reply::Int(-7)),
        ("$3\r\na\r\n\r\n", Reply::Bulk(b"a\r\n".to_vec())),
        ("$0\r\n\r\n", Reply::Bulk(Vec::new())),
        ("$-1\r\n", Reply::Null),
        ("_\r\n", Reply::Null),
        ("*-1\r\n", Reply::NullArray),
        ("*2\r\n:1\r\n-ERR x\r\n", Reply::Array(vec![Reply::Int(1), Reply::Error("ERR x".into())])),
        ("%1\r\n+a\r\n_\r\n", Reply::Map(vec![(Reply::Simple("a".into()), Reply::Null)])),
        ("#t\r\n", Reply::Bool(true)),
        (",1e-05\r\n", Reply::Double(1e-5)),
        ("~1\r\n#f\r\n", Reply::Set(vec![Reply::Bool(false)])),
        (">1\r\n$1\r\na\r\n", Reply::Push(vec![Reply::Bulk(b"a".to_vec())])),
        ("=5\r\ntxt:a\r\n", Reply::Verbatim("a".into())),
        ("(123456789012345678901\r\n", Reply::BigNumber("123456789012345678901".into())),
    ];
    for (wire, expected) in cases {
        let got =
            read_reply(&mut wire.as_bytes()).unwrap_or_else(|error| panic!("{wire:?}: {error}"));
        assert_eq!(got, expected, "{wire:?}");
    }
    for wire in ["", "*2\r\n:1\r\n", "$3\r\nabcd\r\n", ":x\r\n", "#x\r\n", "?\r\n"] {
        assert!(read_reply(&mut wire.as_bytes()).is_err(), "{wire:?} must be refused");
    }
}
