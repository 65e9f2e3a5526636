//! A file of dump into one key: BF.LOADCHUNK, chunk by chunk.
//!
//! A file is checked while it is loaded: the caller removes the key of a damaged one.

use bloom::codec::native::dump::read_header;
use redis::Value;

use crate::{
    connection::Connection,
    dump_file::{Chunk, Reader},
    error::Error,
    interrupt,
    refusal::{Kind, Refusal},
    reply::{only, text},
};

/// Chunks in flight: the server loads one while the next is on its way.
const UNDER_WAY: u64 = 2;

/// Whether a key holds the filter with this header, with more or fewer items; `None` for a filter
/// of another module, which does not tell.
pub(crate) fn holds(
    server: &mut Connection,
    key: &[u8],
    header: &[u8],
) -> Result<Option<bool>, Error> {
    let Ok(plan) = read_header(header) else { return Ok(None) };
    let found = match server.call_for_key(redis::cmd("BF.INFO").arg(key).arg("IDENTITY")) {
        Err(error) if error.is(Kind::NoField) => return Ok(None),
        Err(error) if error.refusal().is_some_and(Refusal::is_no_filter) => return Ok(Some(false)),
        found => found?,
    };
    let identity = format!("{:016x}", plan.identity());
    Ok(text(only(&found)).map(|found| found == identity))
}

/// Sends the header, which makes the key. A server that refuses it has nothing of the filter.
pub(crate) fn begin(server: &mut Connection, key: &[u8], header: &Chunk) -> Result<(), Error> {
    send(server, key, header)?;
    receive(server)
}

/// Loads all chunks behind the header, and checks that the filter is complete. The connection can
/// be used also after an error of the input.
pub(crate) fn load(
    server: &mut Connection,
    key: &[u8],
    reader: &mut Reader,
    watch: &mut dyn FnMut(u64),
) -> Result<(), Error> {
    let mut under_way = 0;
    let ended = loop {
        let chunk = match reader.next() {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        send(server, key, &chunk)?;
        under_way += 1;
        if under_way == UNDER_WAY {
            receive(server)?;
            under_way -= 1;
        }
        watch(reader.position);
        if let Err(interrupted) = interrupt::check("Nothing was restored.") {
            break Err(interrupted);
        }
    };
    (0..under_way).try_for_each(|_| receive(server))?;
    ended?;
    // Complete filters answer it, others do not.
    server.call_for_key(redis::cmd("BF.INFO").arg(key)).map(|_| ())
}

fn send(server: &mut Connection, key: &[u8], chunk: &Chunk) -> Result<(), Error> {
    let iterator = chunk.iterator.to_string();
    server.send_parts(&[b"BF.LOADCHUNK", key, iterator.as_bytes(), &chunk.data])
}

fn receive(server: &mut Connection) -> Result<(), Error> {
    match server.receive()? {
        Value::Okay => Ok(()),
        Value::ServerError(error) => Err(server.refused("BF.LOADCHUNK", &error)),
        other => Err(Error::reply("BF.LOADCHUNK", &other)),
    }
}
