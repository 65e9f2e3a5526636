//! BF.SCANDUMP and BF.LOADCHUNK as clients use them.

use super::client::Client;
use super::reply::Reply;

/// One reply of BF.SCANDUMP: the iterator and the data.
pub type Piece = (i64, Vec<u8>);

/// Fetches all pieces of a filter as clients do: from iterator 0 until the reply's iterator is 0.
#[track_caller]
pub fn dump(client: &mut Client, key: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut iterator = 0;
    loop {
        let reply = client.cmd(&["BF.SCANDUMP", key, &iterator.to_string()]);
        let [Reply::Int(next), Reply::Bulk(data)] = reply.elements() else {
            panic!("BF.SCANDUMP {key} {iterator} answered {reply:?}");
        };
        if *next == 0 {
            assert_eq!(
                data, b"",
                "the last reply has an empty bulk string, which go-redis and redis-rs need"
            );
            return pieces;
        }
        assert!(*next <= 1 << 53, "a JavaScript number cannot hold the iterator {next}");
        assert!(*next > iterator, "the iterator must grow: {iterator}, then {next}");
        pieces.push((*next, data.clone()));
        iterator = *next;
    }
}

/// Sends one piece with BF.LOADCHUNK.
pub fn load(client: &mut Client, key: &str, (iterator, data): &Piece) -> Reply {
    client.call("BF.LOADCHUNK", key, &[iterator.to_string().as_bytes(), data])
}
