//! Runs the sharded filter of clients/rust for tests/clients/python/test_sharded_library.py, which
//! says what this program reads and prints: `filter_worker NAME URL blocking|tokio`.

use redis_bloom_client::{AsyncShardedFilter, Error, Servers, ShardedFilter};
use tokio::runtime::Runtime;

enum Filter {
    Blocking(ShardedFilter),
    Tokio(Runtime, AsyncShardedFilter),
}

fn answer(filter: &Filter, line: &str) -> Result<String, Error> {
    let words: Vec<&str> = line.split(' ').collect();
    let items = &words[1..];
    match (words[0], filter) {
        ("add", Filter::Blocking(filter)) => filter.add(items)?,
        ("add", Filter::Tokio(runtime, filter)) => runtime.block_on(filter.add(items))?,
        ("mark", Filter::Blocking(filter)) => filter.mark()?,
        ("mark", Filter::Tokio(runtime, filter)) => runtime.block_on(filter.mark())?,
        (_, filter) => {
            let answers = match filter {
                Filter::Blocking(filter) => filter.has(items),
                Filter::Tokio(runtime, filter) => runtime.block_on(filter.has(items)),
            };
            let digit = |answer| match answer {
                Some(true) => '1',
                Some(false) => '0',
                None => '?',
            };
            return Ok(answers.into_iter().map(digit).collect());
        }
    }
    Ok("ok".into())
}

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().collect();
    let servers = Servers::cluster([words[2].as_str()])?;
    let filter = match words[3].as_str() {
        "tokio" => Filter::Tokio(Runtime::new()?, AsyncShardedFilter::new(servers, &words[1])?),
        _ => Filter::Blocking(ShardedFilter::new(servers, &words[1])?),
    };
    for line in std::io::stdin().lines() {
        let answer = answer(&filter, &line?);
        println!("{}", answer.unwrap_or_else(|error| format!("raised {error}").replace('\n', " ")));
    }
    Ok(())
}
