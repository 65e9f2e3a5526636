//! Loads items in packed batches with redis-rs: the program of docs/guide/load.md.

use redis::Commands;
use redis_bloom_client::bulk::{self, Answers};

fn main() -> redis::RedisResult<()> {
    let variable = |name, default: &str| std::env::var(name).unwrap_or(default.to_owned());
    let items: u64 = variable("ITEMS", "100000000").parse().expect("ITEMS is a number");
    let client = redis::Client::open(variable("REDIS_URL", "redis://127.0.0.1:6379"))?;
    // The connection is never replaced: if it breaks, the program ends.
    let mut redis = client.get_connection()?;
    redis.unlink::<_, ()>("users")?;
    redis::cmd("BF.RESERVE").arg(("users", 0.01, items)).exec(&mut redis)?;
    let users = (0..items).map(|i| format!("user:{i}"));
    let new = bulk::add("users", users, &["NOCREATE"]).map(|command| command.query(&mut redis));
    let new = new.collect::<redis::RedisResult<Answers>>()?;
    let known = bulk::exists("users", ["user:0", "user:1", "nobody"]);
    let known: Answers =
        known.map(|command| command.query(&mut redis)).collect::<Result<_, _>>()?;
    assert!(known.iter().take(2).all(|known| known));
    println!("rust: {} of {} items were new", new.ones(), new.count);
    Ok(())
}
