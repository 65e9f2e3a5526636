//! BF.CARD, BF.INFO and BF.DEBUG. Clients parse BF.INFO strictly: it must be exactly five pairs, or
//! with a field one pair (RESP3) or one element (RESP2).

use crate::harness::{
    Protocol, Reply, Server, add_until_card, array, bulk, err, fresh, info, int, ints, layers, map,
    null, simple,
};

#[test]
fn card_is_a_plain_integer_in_either_protocol() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        fresh(
            &mut server.speak(protocol),
            &[
                (&[], "BF.CARD missing", int(0)),
                (&["BF.RESERVE k 0.01 100"], "BF.CARD k", int(0)),
                (&["BF.MADD k a b c a"], "BF.CARD k", int(3)),
                (&["BF.ADD k a"], "bf.card k", int(1)),
            ],
        );
    }
}

#[test]
fn a_single_info_field_is_an_array_of_one_or_a_map_of_one() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 100 EXPANSION 3");
    client.run("BF.MADD k a b");
    let size = info(client, "k").size;
    let fields = [
        ("CAPACITY", "Capacity", int(100)),
        ("SIZE", "Size", int(size)),
        ("FILTERS", "Number of filters", int(1)),
        ("ITEMS", "Number of items inserted", int(2)),
        ("EXPANSION", "Expansion rate", int(3)),
    ];
    let mut resp3 = server.resp3();
    for (field, name, value) in fields {
        for spelling in [
            field.to_owned(),
            field.to_lowercase(),
            format!("{}{}", &field[..1], field[1..].to_lowercase()),
        ] {
            assert_eq!(
                client.cmd(&["BF.INFO", "k", &spelling]),
                array([value.clone()]),
                "{spelling}"
            );
            assert_eq!(
                resp3.cmd(&["BF.INFO", "k", &spelling]),
                map([(name, value.clone())]),
                "{spelling}"
            );
        }
    }
    client.run("BF.RESERVE ns 0.01 100 NONSCALING");
    assert_eq!(client.run("BF.INFO ns EXPANSION"), array([null()]));
    assert_eq!(resp3.run("BF.INFO ns EXPANSION"), map([("Expansion rate", null())]));
}

#[test]
fn info_without_a_field_is_exactly_five_pairs() {
    let server = Server::start();
    let client = &mut server.client();
    for (reserve, expansion) in [
        ("BF.RESERVE k 0.01 100 EXPANSION 4", int(4)),
        ("BF.RESERVE k 0.01 100 NONSCALING", null()),
    ] {
        client.run("FLUSHALL");
        client.run(reserve);
        client.run("BF.MADD k a b c");
        let size = client.run("BF.INFO k SIZE").elements()[0].clone();
        let pairs = [
            ("Capacity", int(100)),
            ("Size", size),
            ("Number of filters", int(1)),
            ("Number of items inserted", int(3)),
            ("Expansion rate", expansion),
        ];
        let flat = pairs.iter().flat_map(|(name, value)| [simple(name), value.clone()]);
        assert_eq!(client.run("BF.INFO k"), array(flat), "{reserve}");
        assert_eq!(server.resp3().run("BF.INFO k"), map(pairs), "{reserve}");
    }
}

#[test]
fn info_and_debug_say_what_is_wrong() {
    let server = Server::start();
    let filter = &["BF.ADD k a"][..];
    for protocol in Protocol::BOTH {
        fresh(
            &mut server.speak(protocol),
            &[
                (&[], "BF.INFO missing", err("ERR not found")),
                (&[], "BF.INFO missing CAPACITY", err("ERR not found")),
                // The key is checked before the field.
                (&[], "BF.INFO missing NOPE", err("ERR not found")),
                (filter, "BF.INFO k NOPE", err("ERR Invalid information value")),
                (filter, "BF.INFO k CAP", err("ERR Invalid information value")),
                (filter, "BF.INFO k CAPACITYX", err("ERR Invalid information value")),
                (&[], "BF.DEBUG missing", err("ERR not found")),
            ],
        );
        server.client().run("BF.ADD k a");
        assert_eq!(
            server.speak(protocol).cmd(&["BF.INFO", "k", ""]),
            err("ERR Invalid information value"),
            "an empty field name"
        );
    }
}

/// BF.DEBUG prints rates like RedisBloom's `%g`, so that tools can parse both.
#[test]
fn debug_writes_a_rate_with_six_digits() {
    let server = Server::start();
    let client = &mut server.client();
    for (rate, text) in [
        ("0.3", "0.3"),
        ("0.333333333", "0.333333"),
        ("0.0001", "0.0001"),
        ("0.00005", "5e-05"),
        ("1e-9", "1e-09"),
        ("1.5e-100", "1.5e-100"),
    ] {
        client.run("DEL k");
        client.run(&format!("BF.RESERVE k {rate} 10 NONSCALING"));
        let line = client.run("BF.DEBUG k").elements()[1].text();
        let shown = line.split(' ').find_map(|field| field.strip_prefix("ratio:"));
        assert_eq!(shown, Some(text), "{line}");
    }
}

/// The lines of BF.DEBUG add up to BF.INFO, and the sum of their rates stays within the requested
/// rate: one line for a layer, and one for all pages.
#[test]
fn debug_describes_the_layer_and_the_pages() {
    let server = Server::start();
    let client = &mut server.client();
    for (reserved, card, filters, shape) in [
        (1_000, 1_000, 1, &[(1_000, 1_000)][..]),
        (1_000, 10_000, 4, &[(1_000, 1_000), (14_000, 9_000)]),
        // Nobody counted: there is no layer.
        (100, 100, 1, &[(100, 100)]),
        (100, 10_000, 7, &[(12_700, 10_000)]),
    ] {
        client.run("DEL k");
        client.run(&format!("BF.RESERVE k 0.01 {reserved}"));
        add_until_card(client, "k", "item", card);
        let (items, layers) = layers(client, "k");
        let info = info(client, "k");
        assert_eq!((items, info.items, info.filters), (card, card, filters));
        let shown: Vec<_> = layers.iter().map(|layer| (layer.capacity, layer.size)).collect();
        assert_eq!(shown, shape);
        let capacity: i64 = layers.iter().map(|layer| layer.capacity).sum();
        assert_eq!(info.capacity, capacity, "the capacity is that of a stack of layers");
        for layer in &layers {
            assert_eq!(layer.hash_width, 64, "{layer:?}");
            assert!(layer.hashes >= 1 && layer.bits >= layer.size, "{layer:?}");
            assert!((0..64).contains(&(layer.bytes * 8 - layer.bits)), "{layer:?}");
        }
        let union: f64 = layers.iter().map(|layer| layer.ratio).sum();
        assert!(union <= 0.01, "the rates add up to {union}, above 0.01");
        assert!(reserved == 100 || layers[0].ratio > 0.007, "three quarters: {layers:?}");
        let bytes: i64 = layers.iter().map(|layer| layer.bytes).sum();
        assert!(info.size >= bytes, "BF.INFO Size {} is less than {bytes} bytes", info.size);
    }
}

/// What FILTERS and CAPACITY report follows EXPANSION, as in a stack of layers.
#[test]
fn info_reports_a_stack_of_the_expansion() {
    let server = Server::start();
    let client = &mut server.client();
    for (words, rows) in [
        ("", &[(10, 1, 10), (11, 2, 30), (30, 2, 30), (31, 3, 70), (1_000, 7, 1_270)][..]),
        ("EXPANSION 1", &[(10, 1, 10), (11, 2, 20), (995, 100, 1_000), (1_001, 101, 1_010)]),
        ("EXPANSION 4", &[(10, 1, 10), (50, 2, 50), (51, 3, 210), (1_000, 5, 3_410)]),
        ("COUNTING EXPANSION 3", &[(10, 1, 10), (40, 2, 40), (41, 3, 130), (1_000, 5, 1_210)]),
    ] {
        client.run("DEL k");
        client.run(&format!("BF.RESERVE k 0.000001 10 {words}"));
        for &(card, filters, capacity) in rows {
            add_until_card(client, "k", "item", card);
            let shown = info(client, "k");
            assert_eq!((shown.filters, shown.capacity), (filters, capacity), "{words}: {card}");
            assert_eq!(client.server_info("bf", "bf_layers"), filters.to_string());
            assert_eq!(client.server_info("bf", "bf_capacity"), capacity.to_string());
        }
    }
}

/// redis-py and RedisBloom's test suite compare two filters by this reply.
#[test]
fn debug_is_equal_for_equal_filters_and_differs_for_others() {
    let server = Server::start();
    let client = &mut server.client();
    let rows = [
        ("BF.RESERVE b 0.01 100", "BF.MADD b x y", true),
        ("BF.RESERVE b 0.01 100", "BF.MADD b x", false),
        ("BF.RESERVE b 0.01 200", "BF.MADD b x y", false),
        ("BF.RESERVE b 0.001 100", "BF.MADD b x y", false),
    ];
    client.run("BF.RESERVE a 0.01 100");
    client.run("BF.MADD a x y");
    let expected = client.run("BF.DEBUG a");
    for (reserve, add, equal) in rows {
        client.run("DEL b");
        client.run(reserve);
        client.run(add);
        assert_eq!(client.run("BF.DEBUG b") == expected, equal, "{reserve} ; {add}");
    }
}

#[test]
fn debug_is_an_array_of_bulk_strings_in_either_protocol() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        client.run("FLUSHALL");
        client.run("BF.RESERVE k 0.25 100 NONSCALING");
        client.run("BF.ADD k a");
        let reply = client.run("BF.DEBUG k");
        assert_eq!(reply.elements().len(), 2, "{reply:?}");
        assert_eq!(reply.elements()[0], bulk("size:1"));
        assert!(matches!(reply.elements()[1], Reply::Bulk(_)), "{reply:?}");
        let (_, layers) = layers(client, "k");
        assert_eq!(
            (layers[0].capacity, layers[0].size, layers[0].ratio),
            (100, 1, 0.25),
            "%g of 0.25"
        );
    }
}

/// Whoever knows the seed can compute false positives.
#[test]
fn no_informational_command_shows_the_seed() {
    const SEED: u64 = 12_297_829_382_473_034_411;
    let server = Server::start();
    let client = &mut server.client();
    client.run(&format!("BF.RESERVE k 0.01 100 SEED {SEED}"));
    client.run("BF.ADD k a");
    let spellings =
        [SEED.to_string(), (SEED as i64).to_string(), format!("{SEED:x}"), format!("{SEED:X}")];
    for command in
        ["BF.INFO k", "BF.DEBUG k", "BF.CARD k", "OBJECT ENCODING k", "TYPE k", "INFO everything"]
    {
        let shown = format!("{:?}", client.run(command));
        for spelling in &spellings {
            assert!(!shown.contains(spelling), "{command} shows the seed: {shown}");
        }
    }
    assert_eq!(client.run("BF.MEXISTS k a b"), ints([1, 0]));
}
