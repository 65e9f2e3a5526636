//! `redis-bloom plan`.

use serde_json::Value;

use crate::{
    harness::{Server, info, int, ok},
    run::{run, run_at},
    schema::checked,
};

#[test]
fn plan_shows_the_filters_to_choose_from() {
    let text = run("plan --items 10M --error 0.001").done();
    assert_eq!(
        text,
        "   \
   FILTER              RATE   MEMORY  BITS/ITEM  AT HALF  AT DOUBLE
*  growing            0.001  19.4 MB      15.53  19.4 MB    45.7 MB
   NONSCALING         0.001  18.9 MB      15.08  18.9 MB    refused
   growing from 100   0.001  25.1 MB      20.11  12.6 MB    50.3 MB
   growing, COUNTING  0.001  26.6 MB      21.32  14.5 MB    53.3 MB
"
    );
    let text = run("plan --items 1M --error 1% --counting --nonscaling").done();
    assert!(text.contains("\n*  NONSCALING, COUNTING  0.01  2.04 MB      16.32   "), "{text}");
}

/// A key of many gigabytes is what shards are for.
#[test]
fn plan_of_a_huge_key_names_the_shards() {
    let text = run("plan --items 10G --error 0.1%").done();
    let end = "One key of 19.4 GB is in one node, and its slot cannot be moved by MIGRATE \
               (512 MB).\n--nodes M plans shards over the nodes of a cluster.\n";
    assert!(text.ends_with(end), "{text}");
    assert!(!run("plan --items 250M --error 0.1%").done().contains("--nodes"));
}

/// No two filters have one name, also if one is reserved for more items than it shall hold.
#[test]
fn plan_names_the_capacity_that_is_not_the_items() {
    let text = run("plan --items 1000 --error 1% --initial 100000").done();
    let names: Vec<_> =
        text.lines().skip(1).take(4).map(|line| line[3..].split("  ").next()).collect();
    let expected = ["growing from 100.0 k", "growing", "NONSCALING", "growing from 100"];
    assert_eq!(names, expected.map(Some), "{text}");
}

/// A filter that fits, one that fits but for its rebuild, and one that does not.
#[test]
fn plan_says_whether_a_filter_fits_into_a_server() {
    let server = Server::with().config("maxmemory 100mb").start();
    for (options, code, says) in [
        ("--items 10M --error 1%", 0, "14.7 MB allocated, 29.4 MB with a rebuild"),
        ("--items 40M --error 1%", 1, "It does NOT fit: "),
        ("--items 1G --error 1%", 1, "It does NOT fit: "),
        ("--items 10M --error 1% --window 1h", 0, "It fits, and leaves "),
        ("--items 100M --error 1% --nodes 4", 0, "It fits, and leaves "),
        ("--items 200M --error 1% --nodes 4", 1, "It does NOT fit: "),
    ] {
        let ran = run_at(&server, &format!("plan --server {options}"));
        assert_eq!(ran.code, code, "{options}: {ran:?}");
        assert!(ran.stdout.contains(" of 104.9 MB used (maxmemory)."), "{options}: {ran:?}");
        assert!(ran.stdout.contains(says), "{options}: {ran:?}");
    }
    let ran = run_at(&server, "plan --server --items 10M --error 1% --json");
    let fit = &checked("plan", &ran.stdout)[0]["server"];
    let number = |name: &str| fit[name].as_u64().expect("a number");
    assert_eq!((ran.code, &fit["fits"], number("limit_bytes")), (0, &true.into(), 100 << 20));
    let left = number("limit_bytes") - number("used_bytes") - number("allocated_bytes");
    assert_eq!(number("left_bytes"), left);
    // What the filter takes is what the server counts, but for its key: its bits, and at most what
    // jemalloc adds. Since 5.3.1 it adds less.
    let mut client = server.client();
    assert_eq!(client.run("BF.RESERVE urls 0.01 10000000"), ok());
    let taken = client.run("MEMORY USAGE urls").int() as u64;
    let most = number("allocated_bytes") + 1_000;
    assert!((13_332_624..most).contains(&taken), "{taken}: {fit}");
    // Without a limit: the memory of the machine.
    client.run("CONFIG SET maxmemory 0");
    let ran = run_at(&server, "plan --server --items 10M --error 1%");
    assert!(ran.done().contains("(the machine: maxmemory is not set)."));
    client.run("ACL SETUSER blind on >x ~* -@all");
    let ran = run_at(&server, "--user blind -a x plan --server --items 1M --error 1%");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert_eq!(run("-p 1 plan --server --items 1M --error 1%").code, 3);
}

/// A filter that is created and filled takes the bytes that `plan` shows: exactly for plain bits,
/// on average for pages.
#[test]
fn plan_and_server_agree() {
    let server = Server::start();
    let mut client = server.client();
    for (plans, options) in [
        "--items 1 --error 0.5",
        "--items 10 --error 1e-9",
        "--items 20k --error 0.001",
        "--items 1M --error 0.0001",
        "--items 300k --error 0.01 --initial 10k",
        "--items 300k --error 0.01 --nonscaling --counting",
        "--items 30k --error 0.05 --nonscaling",
    ]
    .into_iter()
    .enumerate()
    {
        let plan = checked("plan", &run(&format!("plan {options} --json")).done());
        let items = plan[0]["items"].as_i64().expect("a number");
        for (variant, filter) in plan[0]["filters"].as_array().unwrap().iter().enumerate() {
            let (counting, grows) = (filter["counting"] == true, filter["grows"] == true);
            let capacity = filter["capacity"].as_i64().expect("a number");
            let key = format!("k{plans}-{variant}");
            let reserve = format!(
                "BF.RESERVE {key} {} {capacity}{}{}",
                filter["error_rate"],
                if grows { "" } else { " NONSCALING" },
                if counting { " COUNTING" } else { "" },
            );
            assert_eq!(client.run(&reserve), ok(), "{reserve}");
            crate::harness::add_until_card(&mut client, &key, "item", items);
            let planned = filter["bytes"].as_i64().expect("a number") as f64;
            let ratio = info(&mut client, &key).size as f64 / planned;
            let has_pages = counting || grows && capacity <= 100 || items > capacity;
            // The pages of a filter take classes of the allocator, two of which differ by at most a
            // quarter: a standard deviation of at most an eighth for one page.
            let pages = (items as f64 / 2_000.0).max(1.0);
            let most = if has_pages { 2.0 / 8.0 / pages.sqrt() } else { 0.0 };
            assert!((ratio - 1.0).abs() <= most, "{options}: {ratio} of {filter}");
        }
    }
}

#[test]
fn wrong_plans_are_refused() {
    let ran = run("plan --items 0 --error 0.1");
    let message = "redis-bloom: 0 items at a rate of 0.1: capacity 0 is not inside [1, 2^62]\n  \
                   Name 1 to 2^62 items.\n";
    assert_eq!((ran.code, &*ran.stdout, &*ran.stderr), (2, "", message));
    for options in [
        "",
        "--items 5",
        "--items x --error 0.1",
        "--items 5 --error 1",
        "--items 5 --error 0.1 --initial 2 --nonscaling",
    ] {
        let ran = run(&format!("plan {options}"));
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{options}");
        assert!(ran.stderr.starts_with("error: "), "{options}: {}", ran.stderr);
    }
}

#[test]
fn plan_says_that_no_filter_keeps_a_rate_below_the_hash() {
    for options in ["", "--nodes 3", "--window 24h"] {
        for (rate, remarks) in [("1e-30", 0), ("1e-31", 1), ("1e-300", 1)] {
            let ran = run(&format!("plan --items 1000 --error {rate} {options}"));
            assert_eq!(ran.code, 0, "{ran:?}");
            let said = ran.stderr.matches("No filter keeps a rate below 1e-30").count();
            assert_eq!(said, remarks, "{rate} {options}: {ran:?}");
        }
        for (rate, remarks) in [("1e-12", 0), ("9e-13", 1), ("1e-30", 1), ("1e-31", 0)] {
            let ran = run(&format!("plan --items 1000 --error {rate} {options}"));
            let said = ran.stderr.matches("Below 1e-12 only NONSCALING").count();
            assert_eq!(said, remarks, "{rate} {options}: {ran:?}");
        }
    }
}

/// The first item is counted out of a window of items: it is found until its age is what plan says.
#[test]
fn plan_says_when_an_item_of_a_window_is_surely_forgotten() {
    let server = Server::start();
    let mut client = server.client();
    for (items, generations, expected) in [(10, 4, 14), (12, 4, 14), (9, 2, 14), (5, 1, 9)] {
        let window = format!("--window count --generations {generations}");
        let planned = run(&format!("plan --items {items} --error 1e-9 {window} --json")).done();
        let planned: Value = serde_json::from_str(&planned).expect("JSON");
        let said = planned["filters"][0]["forgotten_after"].as_u64().expect("a number");
        let name = format!("window:{items}");
        let words = format!("WINDOW COUNT GENERATIONS {generations} SEED 1");
        assert_eq!(client.run(&format!("BF.RESERVE {name} 1e-9 {items} {words}")), ok());
        client.run(&format!("BF.ADD {name} first"));
        let mut age = 0;
        while client.run(&format!("BF.EXISTS {name} first")) == int(1) {
            age += 1;
            client.run(&format!("BF.ADD {name} item:{age}"));
            assert!(age < 100, "it is never forgotten");
        }
        assert_eq!((age, said), (expected, expected), "{items} items, {generations} generations");
    }
}
