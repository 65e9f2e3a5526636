//! Loads items in packed batches with redis-rs: the program of docs/recipes/load.md.

use redis::{Commands, Connection, RedisResult};

const BATCH: u64 = 10_000;

/// Sends a packed batch; returns the answers. An error behind the answers (a full filter, no
/// memory) is the error of the call: then a part of the batch is in.
fn bulk(redis: &mut Connection, words: &[&str], lines: &str) -> RedisResult<Vec<bool>> {
    let (count, bits): (usize, Vec<u8>) =
        redis::cmd(words[0]).arg(&words[1..]).arg(lines).query(redis)?;
    Ok((0..count).map(|i| bits[i / 8] & (0x80 >> (i % 8)) != 0).collect())
}

fn main() -> RedisResult<()> {
    let variable = |name, default: &str| std::env::var(name).unwrap_or(default.to_owned());
    let items: u64 = variable("ITEMS", "100000000").parse().expect("ITEMS is a number");
    let client = redis::Client::open(variable("REDIS_URL", "redis://127.0.0.1:6379"))?;
    let mut redis = client.get_connection()?;
    redis.unlink::<_, ()>("users")?;
    redis::cmd("BF.RESERVE").arg(("users", 0.01, items)).exec(&mut redis)?;
    let mut new = 0;
    for start in (0..items).step_by(BATCH as usize) {
        // Every line ends with \n, so that an empty last item counts. No item may contain \n.
        let lines: String =
            (start..items.min(start + BATCH)).map(|i| format!("user:{i}\n")).collect();
        let words = ["BF.BULKADD", "users", "NOCREATE", "LINES"];
        new += bulk(&mut redis, &words, &lines)?.iter().filter(|&&new| new).count() as u64;
    }
    let found = bulk(&mut redis, &["BF.BULKEXISTS", "users", "LINES"], "user:0\nuser:1\nnobody\n")?;
    assert!(found[0] && found[1] && new >= items / 100 * 98);
    println!("rust: {new} of {items} items were new");
    Ok(())
}
