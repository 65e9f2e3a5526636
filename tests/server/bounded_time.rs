//! The time of a command is bounded by the bytes of a filter that the server has. It never depends
//! on the capacity that a header claims or that BF.INFO reports.

use crate::harness::{
    Header, Payload, Server, add_until_card, assert_sane, assert_unharmed, dump, info, int, layers,
    mexists, ok,
};

fn server() -> Server {
    Server::with().config("rdbcompression no").start()
}

/// A filter that a stack would hold in 5,000 layers.
#[test]
fn a_filter_that_reports_5000_layers_has_one() {
    let server = server();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 1 EXPANSION 1"), ok());
    let items = add_until_card(client, "k", "item", 5_000);
    assert_eq!(info(client, "k").filters, 5_000);
    assert!(mexists(client, "k", &items).iter().all(|&there| there));
    assert_eq!(client.run("BF.DEBUG k").elements().len(), 2);
    assert_eq!(client.run("BF.INFO k LAYERS").elements()[0].elements().len(), 1);
    assert_sane(client, "k", "5,000 layers");
    assert_unharmed(&server);
}

/// A header that claims 2^62 items makes a filter that answers. Sums over such filters are right
/// again once they are deleted.
#[test]
fn sums_over_forged_counts_are_correct_after_their_filters_are_deleted() {
    let server = server();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE small 0.01 1000 SEED 3"), ok());
    let mut payload = Payload::of(client, "small");
    let mut header = Header::parse(&payload.strings[0]);
    let layer = &mut header.layers[0];
    (layer.capacity, layer.items) = (1 << 62, 1 << 62);
    payload.strings[0] = header.bytes();
    let payload = payload.bytes();
    client.run("DEL small");
    for key in ["a", "b", "c"] {
        assert_eq!(client.call("RESTORE", key, &[b"0", &payload[..]]), ok());
        // The first item goes into pages above the layer.
        assert_eq!(client.cmd(&["BF.ADD", key, "new"]), int(1));
        assert_eq!(client.cmd(&["BF.EXISTS", key, "new"]), int(1));
        assert_eq!(client.cmd(&["BF.CARD", key]), int((1 << 62) + 1));
        assert_eq!(layers(client, key).1.len(), 2);
    }
    // Three times 2^62 exceed i64.
    assert_eq!(client.server_info("bf", "bf_items"), (3 * ((1_u64 << 62) + 1)).to_string());
    for word in ["FPR", "FILL", "LAYERS", "ERROR"] {
        assert!(!client.run(&format!("BF.INFO a {word}")).is_error(), "{word}");
    }
    assert_eq!(client.run("BF.RESERVE honest 0.01 100"), ok());
    assert_eq!(client.run("BF.ADD honest item"), int(1));
    assert_eq!(client.run("COPY a d"), int(1));
    assert_eq!(client.run("DEL a b c d"), int(4));
    for (name, value) in [("filters", "1"), ("items", "1"), ("capacity", "100"), ("layers", "1")] {
        assert_eq!(client.server_info("bf", &format!("bf_{name}")), value, "bf_{name}");
    }
    assert_unharmed(&server);
}

/// A native filter has one layer of bits.
#[test]
fn a_forged_stack_of_native_layers_is_refused() {
    let server = server();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE small 0.01 1000 SEED 3"), ok());
    add_until_card(client, "small", "item", 1_000);
    let mut payload = Payload::of(client, "small");
    let mut header = Header::parse(&payload.strings[0]);
    let layer = header.layers[0];
    for count in [2, 3, 100] {
        header.layers = vec![layer; count];
        header.count = count as u32;
        header.present = header.layers.iter().map(redis_bloom_harness::StoredLayer::bytes).sum();
        payload.strings = vec![header.bytes(), vec![0; header.present as usize]];
        let reply = client.call("RESTORE", "k", &[&b"0"[..], &payload.bytes()]);
        assert!(reply.is_error(), "{count} layers");
    }
    assert_unharmed(&server);
}

#[test]
fn scandump_copies_at_most_16_mib() {
    let server = server();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 100000000"), ok());
    let bits = info(client, "k").size;
    let pieces = dump(client, "k");
    let (least, frame) = (bits / (16 << 20), 1 << 10);
    assert!(pieces.len() as i64 > least, "{} pieces of {bits} bytes", pieces.len());
    assert!(pieces.iter().all(|(_, data)| data.len() <= (16 << 20) + frame));
    assert_unharmed(&server);
}
