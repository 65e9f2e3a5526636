//! The crate redis-bloom-client against the server of `REDIS_URL`. What its guard does while
//! servers fail is tested by tests/clients/python/test_guard.py.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use redis::{Client, Cmd, Connection, RedisResult, cmd};
use redis_bloom_client::{
    AsyncGuard, AsyncSeen, AsyncShardedFilter, Error, Guard, Keys, Options, Seen, SeenOptions,
    ShardedFilter,
    bulk::{self, Answers},
};
use redis_bloom_sharding::shard_of;

fn connect() -> (Client, Connection) {
    let url = std::env::var("REDIS_URL")
        .expect("REDIS_URL names the server: run these tests with `make test-clients`");
    let client = Client::open(url).unwrap();
    let connection = client.get_connection().unwrap();
    (client, connection)
}

fn answers(redis: &mut Connection, commands: impl Iterator<Item = Cmd>) -> RedisResult<Answers> {
    commands.map(|command| command.query(redis)).collect()
}

#[test]
fn packed_batches_are_answered_in_their_order() {
    let (_, mut redis) = connect();
    cmd("UNLINK").arg("rust:bulk").exec(&mut redis).unwrap();
    let items: Vec<String> = (0..25_003).map(|i| format!("user:{i}")).collect();
    let options = ["CAPACITY", "30000", "ERROR", "0.0001"];
    let new = answers(&mut redis, bulk::add("rust:bulk", &items, &options)).unwrap();
    // 25,003 items at a rate of 0.0001: 2.5 are known by chance at most; 20 are 1e-11.
    assert!(new.count == items.len() && new.ones() > items.len() as u64 - 20);
    let long = "x".repeat(300);
    let asked = items.iter().step_by(3).map(String::as_str).chain(["nobody", "", &long]);
    let known = answers(&mut redis, bulk::exists("rust:bulk", asked)).unwrap();
    let known: Vec<bool> = known.iter().collect();
    assert_eq!(known.len(), 8335 + 3);
    assert!(known[..8335].iter().all(|&known| known));
    answers(&mut redis, bulk::add("rust:bulk", [&long], &[])).unwrap();
    assert_eq!(answers(&mut redis, bulk::exists("rust:bulk", [&long])).unwrap().ones(), 1);
    cmd("BF.RESERVE")
        .arg("rust:full")
        .arg(0.000001)
        .arg(2)
        .arg("NONSCALING")
        .exec(&mut redis)
        .unwrap();
    let error = answers(&mut redis, bulk::add("rust:full", ["a", "b", "c"], &[])).unwrap_err();
    cmd("UNLINK").arg("rust:full").exec(&mut redis).unwrap();
    assert!(error.to_string().contains("full"), "{error}");
}

#[test]
fn a_guard_stops_absent_rows_and_hides_none() {
    let (client, _) = connect();
    let mut options = Options::new(1000);
    options.commit_within = Duration::from_millis(100);
    let guard = Guard::new(&client, "rust", options).unwrap();
    let keys = (0..100).map(|i| format!("user:{i}").into_bytes());
    assert_eq!(guard.lookup("absent", |_| Some(1)), Some(1), "there is no filter yet");
    guard.build(|| Ok(Box::new(keys))).unwrap();
    guard.insert("new").unwrap();
    let possible = guard.lookup_many(["user:1", "absent", "new"], |keys| keys);
    assert!(possible.contains(&"user:1") && possible.contains(&"new"));
    for i in 0..100 {
        assert_eq!(guard.lookup(format!("user:{i}"), |_| Some(())), Some(()));
    }
    for i in 0..100 {
        guard.lookup(format!("absent:{i}"), |_| None::<()>);
    }
    // 101 absent keys at a rate of 0.001: more than 5 pass once in 10^9.
    assert!(guard.stats().saved >= 95, "{:?}", guard.stats());
}

#[tokio::test]
async fn a_guard_for_tokio_does_the_same_and_catches_up() {
    let (client, mut redis) = connect();
    let rows_since = async |_: SystemTime| {
        let rows: Keys = Box::new(["past".into()].into_iter());
        Ok::<_, Error>(rows)
    };
    let rows = move |since| Box::pin(rows_since(since));
    let mut options = Options::new(1000).catch_up_async(rows);
    options.commit_within = Duration::from_millis(50);
    options.refresh = Duration::from_millis(1);
    let blocking = Options::new(1000).catch_up_async(async |_| Err("not called".into()));
    assert!(Guard::new(&client, "rust:async", blocking).is_err());
    let blocking = Options::new(1000).catch_up(|_| Err("not called".into()));
    assert!(AsyncGuard::new(&client, "rust:async", blocking).is_err());
    cmd("UNLINK").arg("guard:{rust:async}").exec(&mut redis).unwrap();
    let guard = AsyncGuard::new(&client, "rust:async", options).unwrap();
    let task = tokio::spawn(async move {
        let keys = (0..100).map(|i| format!("user:{i}").into_bytes());
        guard.build(async || Ok(Box::new(keys) as Keys)).await.unwrap();
        guard.insert("new").await.unwrap();
        for key in ["user:1", "new"] {
            assert_eq!(guard.lookup(key, async |_| Some(1)).await, Some(1));
        }
        let all = (0..100).map(|i| format!("absent:{i}"));
        assert!(guard.lookup_many(all, async |keys| keys.len()).await < 5, "{:?}", guard.stats());
        while guard.stats().catch_ups == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(guard.lookup("past", async |_| Some(1)).await, Some(1));
        guard.close().await;
    });
    tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
}

/// `catch_up` panics at first, as one that unwraps what its database says.
fn panics_once() -> impl Fn(SystemTime) -> Result<Keys, Error> + Send + Sync + 'static {
    let calls = AtomicU32::new(0);
    move |_| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => panic!("the database is down"),
        _ => Ok(Box::new(["past".into()].into_iter())),
    }
}

fn refreshed() -> Options {
    let mut options = Options::new(1000);
    options.commit_within = Duration::from_millis(50);
    options.refresh = Duration::from_millis(1);
    options
}

#[test]
fn a_catch_up_that_panicked_is_tried_again() {
    let (client, mut redis) = connect();
    cmd("UNLINK").arg("guard:{rust:panic}").exec(&mut redis).unwrap();
    let guard = Guard::new(&client, "rust:panic", refreshed().catch_up(panics_once())).unwrap();
    guard.build(|| Ok(Box::new(std::iter::empty()))).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while guard.stats().catch_ups == 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(guard.lookup("past", |_| Some(1)), Some(1));
    let stats = guard.stats();
    assert!(stats.catch_ups > 0 && stats.catch_up_failures == 1, "{stats:?}");
}

#[test]
fn a_catch_up_that_hangs_does_not_keep_the_end_of_a_guard_waiting() {
    let (client, mut redis) = connect();
    cmd("UNLINK").arg("guard:{rust:hangs}").exec(&mut redis).unwrap();
    let (called, calls) = std::sync::mpsc::channel();
    let hangs = move |_| {
        called.send(()).unwrap();
        std::thread::sleep(Duration::from_secs(600));
        Err("not reached".into())
    };
    let guard = Guard::new(&client, "rust:hangs", refreshed().catch_up(hangs)).unwrap();
    guard.build(|| Ok(Box::new(std::iter::empty()))).unwrap();
    calls.recv_timeout(Duration::from_secs(60)).unwrap();
    let begin = Instant::now();
    drop(guard);
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_guard_for_tokio_is_refused_outside_a_runtime() {
    let (client, _) = connect();
    let options = refreshed().catch_up_async(async |_| Err("not called".into()));
    assert!(AsyncGuard::new(&client, "rust:outside", options).is_err());
}

#[tokio::test]
async fn the_end_of_a_guard_for_tokio_ends_a_catch_up_that_hangs() {
    end_a_catch_up_that_hangs("rust:hangs:close", async |guard| guard.close().await).await;
    end_a_catch_up_that_hangs("rust:hangs:drop", async |guard| drop(guard)).await;
}

/// The callback holds the sender, so the channel is closed when the task has ended.
async fn end_a_catch_up_that_hangs(name: &str, end: impl AsyncFnOnce(AsyncGuard)) {
    let (client, mut redis) = connect();
    cmd("UNLINK").arg(format!("guard:{{{name}}}")).exec(&mut redis).unwrap();
    let (called, mut calls) = tokio::sync::mpsc::unbounded_channel();
    let hangs = move |_| {
        let called = called.clone();
        async move {
            called.send(()).unwrap();
            std::future::pending::<()>().await;
            drop(called);
            Err("not reached".into())
        }
    };
    let options = refreshed().catch_up_async(hangs);
    let guard = AsyncGuard::new(&client, name, options).unwrap();
    guard.build(async || Ok(Box::new(std::iter::empty()) as Keys)).await.unwrap();
    let minute = Duration::from_secs(60);
    tokio::time::timeout(minute, calls.recv()).await.unwrap().unwrap();
    let begin = Instant::now();
    end(guard).await;
    // A `Guard` waits 2 seconds for its background.
    assert!(begin.elapsed() < Duration::from_secs(2));
    assert_eq!(tokio::time::timeout(minute, calls.recv()).await, Ok(None));
}

#[tokio::test]
async fn a_catch_up_for_tokio_that_panicked_is_tried_again() {
    let (client, mut redis) = connect();
    cmd("UNLINK").arg("guard:{rust:panic:tokio}").exec(&mut redis).unwrap();
    let rows = panics_once();
    let options = refreshed().catch_up_async(move |since| std::future::ready(rows(since)));
    let guard = AsyncGuard::new(&client, "rust:panic:tokio", options).unwrap();
    guard.build(async || Ok(Box::new(std::iter::empty()) as Keys)).await.unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while guard.stats().catch_ups == 0 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stats = guard.stats();
    assert!(stats.catch_ups > 0 && stats.catch_up_failures == 1, "{stats:?}");
    guard.close().await;
}

#[test]
fn seen_items_are_forgotten_and_claimed_once() {
    let (client, mut redis) = connect();
    cmd("UNLINK").arg("rust:seen").arg("rust:pages").exec(&mut redis).unwrap();
    let mut options = SeenOptions::new(1000);
    options.within = Some(Duration::from_millis(400));
    let seen = Seen::new(&client, "rust:seen", options).unwrap();
    assert!(seen.add("a").unwrap() && !seen.add("a").unwrap());
    assert_eq!(seen.add_many(["a", "b"]).unwrap(), [false, true]);
    assert_eq!(seen.has_many(["a", "c"]).unwrap(), [true, false]);
    assert!(seen.has_many([""; 0]).unwrap().is_empty());
    std::thread::sleep(Duration::from_millis(600));
    assert!(!seen.has("a").unwrap());

    let pages = || Seen::new(&client, "rust:pages", SeenOptions::new(1000)).unwrap();
    let (one, two) = (pages(), pages());
    assert_eq!(one.claim(["a", "b"]).unwrap(), ["a", "b"]);
    assert_eq!(two.claim(["a", "c"]).unwrap(), ["c"]);
    one.done("a").unwrap();
    two.release("c").unwrap();
    assert_eq!(one.claim(["a", "c"]).unwrap(), ["c"]);
    for item in ["b", "c"] {
        one.release(item).unwrap();
    }
    cmd("SET").arg("rust:text").arg("no filter").exec(&mut redis).unwrap();
    Seen::new(&client, "rust:text", SeenOptions::new(1000)).unwrap().claim(["a", "b"]).unwrap_err();
    let claims: Vec<String> = cmd("KEYS").arg("rust:text:*").query(&mut redis).unwrap();
    assert!(claims.is_empty(), "{claims:?}");
}

/// Reserves the shards of a generation, and returns their fields of the descriptor.
fn reserve(redis: &mut Connection, name: &str, generation: u64, shards: u64) -> Vec<[String; 2]> {
    let fields =
        [("shards", shards), ("generation", generation), ("error", 0), ("capacity", 10_000)];
    let mut fields = fields.map(|(field, value)| [field.to_string(), value.to_string()]).to_vec();
    fields[2][1] = "0.001".into();
    for shard in 0..shards {
        let key = format!("{{{name}:{shard}}}:{generation}");
        let mut reserve = cmd("BF.RESERVE");
        reserve.arg(&key).arg(0.001).arg(10_000).arg("SHARD").arg(shard).arg(shards);
        cmd("UNLINK").arg(&key).exec(redis).unwrap();
        reserve.exec(redis).unwrap();
        fields.push([shard.to_string(), key]);
    }
    fields
}

fn describe(redis: &mut Connection, name: &str, prefix: &str, fields: &[[String; 2]]) {
    let mut set = cmd("HSET");
    set.arg(name);
    for [field, value] in fields {
        set.arg(format!("{prefix}{field}")).arg(value);
    }
    set.exec(redis).unwrap();
}

/// A sharded filter on one server; tests/clients/python/test_sharded_library.py has a cluster.
fn sharded(redis: &mut Connection, name: &str) -> Vec<[String; 2]> {
    let fields = reserve(redis, name, 1, 4);
    let head = [("rule", "crc32"), ("state", "ready"), ("poll", "1")];
    cmd("UNLINK").arg(name).exec(redis).unwrap();
    describe(redis, name, "", &head.map(|(field, value)| [field.into(), value.into()]));
    describe(redis, name, "", &fields);
    fields
}

#[test]
fn a_poll_without_end_is_no_panic() {
    let (client, mut redis) = connect();
    sharded(&mut redis, "rust:poll");
    cmd("HSET").arg("rust:poll").arg("poll").arg(u64::MAX).exec(&mut redis).unwrap();
    ShardedFilter::new(&client, "rust:poll").unwrap().add(&["a"]).unwrap();
}

#[test]
fn threads_do_not_wait_one_after_another_for_a_server_that_hangs() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap(); // accepts, and never replies
    let client = Client::open(format!("redis://{}", server.local_addr().unwrap())).unwrap();
    let mut options = Options::new(1000);
    options.timeout = Duration::from_millis(500);
    let guard = Guard::new(&client, "rust:hangs", options).unwrap();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(guard.lookup("key", |_| Some(1)), Some(1)));
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn tasks_share_one_connection_from_its_beginning() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap(); // accepts, and never replies
    let client = Client::open(format!("redis://{}", server.local_addr().unwrap())).unwrap();
    let mut options = Options::new(1000);
    options.timeout = Duration::from_millis(500);
    let guard = AsyncGuard::new(&client, "rust:shared", options).unwrap();
    let look_up = || guard.lookup("key", async |_| Some(1));
    let begin = Instant::now();
    tokio::join!(look_up(), look_up(), look_up(), look_up(), look_up(), look_up());
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    server.set_nonblocking(true).unwrap();
    let connections = server.incoming().take_while(Result::is_ok).count();
    assert!(connections <= 2, "{connections}"); // the second one if the first has just failed
}

#[test]
fn a_no_is_believed_of_a_marked_shard_only() {
    let (client, mut redis) = connect();
    sharded(&mut redis, "rust:marks");
    let filter = ShardedFilter::new(&client, "rust:marks").unwrap();
    let items: Vec<String> = (0..1000).map(|i| format!("user:{i}")).collect();
    filter.add(&items).unwrap();
    assert_eq!(filter.has(&["nobody"]), [None]);
    assert!(filter.failures() > 0);
    std::thread::sleep(Duration::from_millis(1100)); // a shard is left alone after a failure
    filter.mark().unwrap();
    assert_eq!(filter.has(&items), vec![Some(true); 1000]);
    assert_eq!(filter.has(&["nobody"]), [Some(false)]);
    let lost = shard_of(b"user:1", 4);
    cmd("UNLINK").arg(format!("{{rust:marks:{lost}}}:1")).exec(&mut redis).unwrap();
    assert_eq!(filter.has(&["user:1"]), [None]);
    assert!(filter.add(&["user:1"]).unwrap_err().to_string().contains("not found"));
    assert!(!filter.has(&items).contains(&Some(false)));
    std::thread::sleep(Duration::from_millis(1100));
    cmd("SET").arg(format!("{{rust:marks:{lost}}}:1")).arg("gone").exec(&mut redis).unwrap();
    let failures = filter.failures();
    assert_eq!((filter.has(&["user:1"]), filter.failures()), (vec![None], failures + 1));
    assert_eq!((filter.has(&["user:1"]), filter.failures()), (vec![None], failures + 1), "a pause");
    assert_eq!(ShardedFilter::new(&client, "rust:none").unwrap().has(&["a"]), [None]);
}

#[tokio::test]
async fn a_rebuild_is_followed() {
    let (client, mut redis) = connect();
    let name = "rust:rebuild";
    let before = sharded(&mut redis, name);
    let filter = AsyncShardedFilter::new(&client, name).unwrap();
    filter.add(&["old"]).await.unwrap();
    filter.mark().await.unwrap();
    let after = reserve(&mut redis, name, 2, 8);
    describe(&mut redis, name, "next.", &after);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let items: Vec<String> = (0..500).map(|i| format!("user:{i}")).collect();
    filter.add(&items).await.unwrap();
    let other = AsyncShardedFilter::new(&client, name).unwrap();
    other.has(&["old"]).await;
    let mut gone = cmd("HDEL");
    gone.arg(name);
    for [field, _] in &after[8..] {
        gone.arg(format!("next.{field}"));
    }
    describe(&mut redis, name, "", &after);
    describe(&mut redis, name, "next.", &before);
    gone.exec(&mut redis).unwrap();
    filter.add(&["during"]).await.unwrap();
    for [_, key] in &before[4..] {
        cmd("SET").arg(key).arg("moved to 2").exec(&mut redis).unwrap();
    }
    assert_eq!(other.has(&items).await, vec![Some(true); 500]);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    other.add(&["after"]).await.unwrap();
    assert_eq!(filter.has(&["during", "after"]).await, [Some(true); 2]);
    cmd("HSET").arg(name).arg("next.shards").arg(0).exec(&mut redis).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let error = filter.add(&["b"]).await.unwrap_err();
    assert!(error.to_string().contains("next generation"), "{error}");
    assert_eq!(filter.has(&["after"]).await, [Some(true)]);
}

#[tokio::test]
async fn windows_and_batches_for_tokio() {
    let (client, mut redis) = connect();
    cmd("UNLINK").arg("rust:tokio").arg("rust:tokio:bulk").exec(&mut redis).unwrap();
    tokio::spawn(async move {
        let seen = AsyncSeen::new(&client, "rust:tokio", SeenOptions::new(1000)).unwrap();
        assert_eq!(seen.claim(["a", "b"]).await.unwrap(), ["a", "b"]);
        seen.done("a").await.unwrap();
        assert!(seen.has("a").await.unwrap() && seen.add("b").await.unwrap());
        let mut redis = client.get_multiplexed_async_connection().await.unwrap();
        let items: Vec<String> = (0..10_001).map(|i| format!("user:{i}")).collect();
        let (key, options) = ("rust:tokio:bulk", ["CAPACITY", "20000"]);
        let mut replies = Vec::new();
        for command in bulk::add(key, &items, &options).chain(bulk::exists(key, &items)) {
            replies.push(command.query_async(&mut redis).await.unwrap());
        }
        let known: Answers = replies.drain(2..).collect();
        assert_eq!((known.count, known.ones()), (10_001, 10_001));
    })
    .await
    .unwrap();
}
